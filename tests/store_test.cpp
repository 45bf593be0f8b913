// SPDX-License-Identifier: Apache-2.0
#include "reprise/errors.h"
#include "reprise/safetensors.h"
#include "store/atomic_file.h"
#include "store/safetensors_header.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <torch/torch.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <thread>
#include <tuple>

namespace reprise {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

const fs::path kPythonFile =
    fs::path(REPRISE_TEST_DIR) / "golden" / "python_safetensors.safetensors";

/// An empty folder that lives as long as the object.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "reprise-store-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path operator/(const std::string& name) const { return path_ / name; }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(path_))
      found.insert(entry.path().filename().string());
    return found;
  }

 private:
  fs::path path_;
};

std::string read_bytes(const fs::path& path) {
  std::ifstream input(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << input.rdbuf();
  return bytes.str();
}

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  return {static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()};
}

/// Equal type, shape and bytes: unlike torch::equal, NaN equals itself.
bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && bytes_of(a) == bytes_of(b);
}

/// A file with `json` as its header, padded as writers do, and `data` after it.
std::string file_of(std::string json, const std::string& data) {
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string length(8, '\0');
  const std::uint64_t size = json.size();
  std::memcpy(length.data(), &size, 8);
  return length + json + data;
}

/// Message of the DataError that loading `bytes` gives; empty when they are read.
std::string refusal(const std::string& bytes) {
  const Folder folder;
  write_bytes(folder / "file", bytes);
  try {
    load_safetensors(folder / "file");
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr((folder / "file").string()));
    return error.what();
  }
  return "";
}

SafetensorsFile content_of_pythons_file() {
  const double infinity = std::numeric_limits<double>::infinity();
  const double smallest = std::numeric_limits<double>::denorm_min();  // 2^-1074
  SafetensorsFile file;
  file.metadata = {{"made by", "Größe, \\ and \t"}};
  auto& tensors = file.tensors;
  tensors["f64"] =
      torch::tensor({0.5, -1.25, 3e300, infinity, -0.0, smallest}, torch::kFloat64).view({2, 3});
  tensors["f32"] = torch::arange(6, torch::kFloat32).view({1, 2, 3}) / 4;
  tensors["f16"] = torch::tensor({1.5, -2.0, 65504.0}, torch::kFloat64).to(torch::kFloat16);
  tensors["bf16"] = torch::tensor({1.0, -2.0, 3.140625}, torch::kFloat64).to(torch::kBFloat16);
  tensors["i64"] = torch::tensor(
      {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()});
  tensors["i32"] = torch::tensor({std::numeric_limits<int>::min(), std::numeric_limits<int>::max()},
                                 torch::kInt32);
  tensors["i16"] = torch::tensor({-32768, 32767}, torch::kInt32).to(torch::kInt16);
  tensors["i8"] = torch::tensor({-128, 127}, torch::kInt32).to(torch::kInt8);
  tensors["u8"] = torch::tensor({0, 255}, torch::kInt32).to(torch::kUInt8);
  tensors["bool"] = torch::tensor({1, 0, 1}, torch::kInt32).to(torch::kBool);
  tensors["scalar"] = torch::tensor(7.0F);
  tensors["empty"] = torch::zeros({0, 3});
  tensors["späte \"Werte\"\n"] = torch::ones({1}, torch::kInt64);
  return file;
}

TEST(Safetensors, ReadsTheFileOfThePythonPackage) {
  const SafetensorsFile expected = content_of_pythons_file();
  const SafetensorsFile loaded = load_safetensors(kPythonFile);
  EXPECT_EQ(loaded.metadata, expected.metadata);
  ASSERT_EQ(loaded.tensors.size(), expected.tensors.size());
  for (const auto& [name, tensor] : expected.tensors) {
    ASSERT_TRUE(loaded.tensors.contains(name)) << name;
    EXPECT_TRUE(same(loaded.tensors.at(name), tensor)) << name << '\n'
                                                       << loaded.tensors.at(name) << '\n'
                                                       << tensor;
  }
}

TEST(Safetensors, WritesTheBytesThatThePythonPackageWrites) {
  const Folder folder;
  save_safetensors(folder / "file", content_of_pythons_file());
  EXPECT_TRUE(read_bytes(folder / "file") == read_bytes(kPythonFile));
}

constexpr std::array kStorableTypes = {at::kLong, at::kDouble, at::kFloat, at::kInt,  at::kBFloat16,
                                       at::kHalf, at::kShort,  at::kChar,  at::kByte, at::kBool};

at::Tensor arbitrary_tensor() {
  const auto type = *rc::gen::elementOf(kStorableTypes);
  const auto rank = *rc::gen::inRange<std::size_t>(0, 5);
  const auto shape =
      *rc::gen::container<std::vector<std::int64_t>>(rank, rc::gen::inRange<std::int64_t>(0, 5));
  const at::Tensor tensor = torch::empty(shape, type);
  const auto largest = type == at::kBool ? 2 : 256;
  const auto bytes =
      *rc::gen::container<std::vector<int>>(tensor.nbytes(), rc::gen::inRange(0, largest));
  std::copy(bytes.begin(), bytes.end(), static_cast<unsigned char*>(tensor.mutable_data_ptr()));
  return *rc::gen::arbitrary<bool>() && rank >= 2 ? tensor.transpose(0, 1)
                                                  : tensor;  // not contiguous
}

std::string arbitrary_text() {
  static const std::vector<std::string> kPieces = {"a",  "B",    "0", ".", "\"", "\\", "/",
                                                   "\n", "\x01", "ü", "€", "😀", " "};
  std::string text;
  for (const auto& piece :
       *rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(kPieces)))
    text += piece;
  return text;
}

RC_GTEST_PROP(Safetensors, ReadsBackWhatItWrote, ()) {
  SafetensorsFile file;
  for (int i = *rc::gen::inRange(0, 6); i > 0; --i)
    file.tensors[arbitrary_text()] = arbitrary_tensor();
  for (int i = *rc::gen::inRange(0, 3); i > 0; --i)
    file.metadata[arbitrary_text()] = arbitrary_text();
  const Folder folder;
  save_safetensors(folder / "file", file);
  const SafetensorsFile loaded = load_safetensors(folder / "file");
  RC_ASSERT(loaded.metadata == file.metadata);
  RC_ASSERT(loaded.tensors.size() == file.tensors.size());
  for (const auto& [name, tensor] : file.tensors) {
    RC_ASSERT(loaded.tensors.at(name).is_contiguous());
    RC_ASSERT(same(loaded.tensors.at(name), tensor));
  }
}

TEST(Safetensors, StoresParametersAndConjugatesAsValues) {
  const Folder folder;
  const auto parameter = torch::tensor({1.0, 2.0}).requires_grad_();
  const auto negated =
      torch::imag(torch::conj(torch::complex(torch::ones({2}), torch::ones({2}))));  // a lazy -1
  save_safetensors(folder / "file", {{{"parameter", parameter}, {"negated", negated}}, {}});
  const auto loaded = load_safetensors(folder / "file").tensors;
  EXPECT_FALSE(loaded.at("parameter").requires_grad());
  EXPECT_TRUE(torch::equal(loaded.at("parameter"), parameter));
  EXPECT_TRUE(torch::equal(loaded.at("negated"), -torch::ones({2})));
}

TEST(Safetensors, RefusesAFileCutOffAnywhere) {
  const std::string whole = read_bytes(kPythonFile);
  ASSERT_EQ(refusal(whole), "");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(refusal(whole.substr(0, size)), "")
        << "cut to " << size << " of " << whole.size() << " bytes";
  }
  EXPECT_THAT(refusal(whole + '\0'),
              HasSubstr("the file holds 132"));  // 131 bytes of data and one more
}

/// Type, shape and bytes of every tensor: all but names and empty shapes, which nothing in the file
/// protects.
std::multiset<std::tuple<at::ScalarType, std::vector<std::int64_t>, std::string>> data_of(
    const SafetensorsFile& file) {
  std::multiset<std::tuple<at::ScalarType, std::vector<std::int64_t>, std::string>> data;
  for (const auto& [name, tensor] : file.tensors) {
    const auto shape = tensor.numel() == 0 ? std::vector<std::int64_t>{0} : tensor.sizes().vec();
    data.emplace(tensor.scalar_type(), shape, bytes_of(tensor));
  }
  return data;
}

TEST(Safetensors, NeverReadsOtherDataWhenABitOfTheHeaderIsFlipped) {
  const std::string whole = read_bytes(kPythonFile);
  const auto expected = data_of(load_safetensors(kPythonFile));
  const Folder folder;
  const std::size_t header_bytes = whole.size() - 131;  // the data
  int refused = 0;
  for (std::size_t bit = 0; bit < 8 * header_bytes; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    write_bytes(folder / "file", damaged);
    try {
      EXPECT_TRUE(data_of(load_safetensors(folder / "file")) == expected) << "bit " << bit;
    } catch (const DataError&) {
      ++refused;
    }
  }
  // The others lie in names, metadata and padding.
  EXPECT_GT(refused, static_cast<int>(4 * header_bytes));
}

TEST(Safetensors, NamesWhatIsWrongWithAHeader) {
  const std::string two = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const std::string eight(8, '\0');
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"[]", "", "does not begin with '{'"},
      {" {}", "", "does not begin with '{'"},
      {"{", "", "no JSON object"},
      {"{}x", "", "no JSON object"},
      {"{\"\xFF\":1}", "", "no JSON object"},
      {"{}", eight, "describes 0 bytes of data, the file holds 8"},
      {R"({"a":)" + two + R"(,"a":)" + two + "}", eight, R"(the key "a" twice)"},
      {R"({"a":)" + two + R"(,"\u0061":)" + two + "}", eight, R"(the key "a" twice)"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight,
       R"(the key "dtype" twice)"},
      {R"({"a":{"b":{"c":{"d":1}}}})", "", "nested more than 3 deep"},
      {R"({"a":1})", "", "tensor 'a': its entry is not {dtype, shape, data_offsets}"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", eight, "its entry is not"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", eight,
       "its entry is not"},
      {R"({"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})", eight,
       R"(dtype is "F8_E4M3"; known are I64)"},
      {R"({"a":{"dtype":3,"shape":[2],"data_offsets":[0,8]}})", eight, "dtype is 3; known are"},
      {R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", eight, "shape is no list"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", eight, "shape holds -2"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", eight, "shape holds 2.0"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}})", eight,
       "which is no integer"},
      // 2^32 * 2^32 * 4 bytes wraps round to 0, and so does 2^62 * 4.
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", "",
       "2^63 bytes or more"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", "",
       "2^63 bytes or more"},
      {R"({"a":{"dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0]}})", "",
       "2^63 bytes or more"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", eight,
       "data_offsets is [8,0], not [begin, end]"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}})", eight, "not [begin, end]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", eight,
       "need 4 bytes, data_offsets give it 8"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", eight,
       "tensor 'a' begins at byte 4 of the data, after"},
      {R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
       eight, "tensor 'b' begins at byte 4 of the data, before the end of the one before it, 5"},
      {R"({"a":)" + two + R"(,"b":)" + two + "}", eight, "tensor 'b' begins at byte 0"},
      {R"({"a":)" + two + "}", "1234567", "describes 8 bytes of data, the file holds 7"},
      {R"({"__metadata__":{"a":1}})", "", "__metadata__ 'a' is no string"},
      {R"({"__metadata__":["a"]})", "", "__metadata__ is no object"},
      {R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", "\x01\x02",
       "tensor 'a': a BOOL is neither 0 nor 1"},
  };
  for (const auto& [json, data, message] : cases)
    EXPECT_THAT(refusal(file_of(json, data)), HasSubstr(message)) << json;
  EXPECT_EQ(refusal(file_of(R"({"a":)" + two + "}", eight)), "");
  EXPECT_EQ(refusal(file_of("{}", "")), "");
}

TEST(Safetensors, ChecksTheLengthOfTheHeaderBeforeItReadsIt) {
  std::string huge = file_of("{}", "");
  huge.replace(0, 8, std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"));
  EXPECT_THAT(refusal(huge), HasSubstr("18446744073709551615 bytes, more than the 100 MB allowed"));
  huge[0] = 9;  // 8 bytes of header follow
  std::fill(huge.begin() + 1, huge.begin() + 8, '\0');
  EXPECT_THAT(refusal(huge), HasSubstr("length is 9 bytes, the file has only 8 after it"));
  EXPECT_THAT(refusal("1234567"), HasSubstr("7 bytes, too few for a header"));
}

/// Message of the DataError that saving `file` gives; nothing may have been written.
std::string save_refusal(const SafetensorsFile& file) {
  const Folder folder;
  try {
    save_safetensors(folder / "file", file);
  } catch (const DataError& error) {
    EXPECT_THAT(folder.names(), IsEmpty());
    return error.what();
  }
  return "";
}

TEST(Safetensors, RefusesToSaveWhatItCouldNotRead) {
  const auto one = torch::ones({1});
  EXPECT_EQ(save_refusal({{{"a", one}}, {}}), "");
  EXPECT_THAT(save_refusal({{{"a", at::Tensor()}}, {}}), HasSubstr("tensor 'a': it is undefined"));
  EXPECT_THAT(save_refusal({{{"a", one.to_sparse()}}, {}}),
              HasSubstr("tensor 'a': it is undefined, sparse"));
  EXPECT_THAT(save_refusal({{{"a", one.to(at::kMeta)}}, {}}), HasSubstr("without data"));
  EXPECT_THAT(save_refusal({{{"a", one.to(at::kComplexFloat)}}, {}}),
              HasSubstr("type ComplexFloat cannot be stored"));
  EXPECT_THAT(save_refusal({{{"__metadata__", one}}, {}}), HasSubstr("reserved"));
  EXPECT_THAT(save_refusal({{{"\xFF", one}}, {}}), HasSubstr("not UTF-8"));
  EXPECT_THAT(save_refusal({{{"a", one}}, {{"k", "\xFF"}}}), HasSubstr("not UTF-8"));
}

TEST(Safetensors, NamesTheFileThatItCannotRead) {
  const Folder folder;
  EXPECT_THROW(load_safetensors(folder / "missing"), DataError);
  EXPECT_THROW(load_safetensors(folder / ""), DataError);  // a folder
  EXPECT_THROW(save_safetensors(folder / "no" / "such", {}), DataError);
}

TEST(FormatHeader, RefusesANameGivenTwice) {
  detail::SafetensorsHeader header;
  header.tensors = {{"a", detail::ElementType::kU8, {1}, 0, 1},
                    {"a", detail::ElementType::kU8, {1}, 1, 2}};
  EXPECT_THROW(detail::format_header(header), DataError);
}

TEST(AtomicFile, ReplacesAFileAtCommitOnly) {
  const Folder folder;
  write_bytes(folder / "file", "old");
  {
    AtomicFile file(folder / "file");
    file.write("new");
    EXPECT_EQ(read_bytes(folder / "file"), "old");
    file.write(" content");
    file.commit();
    EXPECT_EQ(read_bytes(folder / "file"), "new content");
  }
  EXPECT_EQ(folder.names(), std::set<std::string>{"file"});
}

TEST(AtomicFile, LeavesNothingBehindWithoutCommit) {
  const Folder folder;
  {
    AtomicFile(folder / "file").write("never seen");
  }
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(AtomicFile, KeepsTheOldFileWhenWritingFails) {
  const Folder folder;
  write_bytes(folder / "file", "old");
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small{1000, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  try {
    write_file_atomically(folder / "file", std::string(5000, 'x'));
  } catch (const DataError& error) {
    message = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr((folder / "file").string() + ": could not write: File too large"));
  EXPECT_EQ(read_bytes(folder / "file"), "old");
  EXPECT_EQ(folder.names(), std::set<std::string>{"file"});
}

TEST(AtomicFile, RemovesItsTemporaryFileWhenItCannotRename) {
  const Folder folder;
  {
    AtomicFile file(folder / "file");
    file.write("content");
    fs::create_directories(folder / "file" / "now a folder");
    EXPECT_THROW(file.commit(), DataError);
  }
  EXPECT_EQ(folder.names(), std::set<std::string>{"file"});
}

TEST(AtomicFile, KeepsPermissionsAndLinks) {
  const Folder folder;
  write_bytes(folder / "file", "old");
  ::chmod((folder / "file").c_str(), 0640);
  fs::create_symlink("file", folder / "link");
  write_file_atomically(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_bytes(folder / "file"), "new");
  struct stat status{};
  ASSERT_EQ(::stat((folder / "file").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0640U);
}

TEST(AtomicFile, RefusesWhatIsNoFile) {
  const Folder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(AtomicFile(folder / "pipe"), DataError);
  EXPECT_THROW(AtomicFile(folder / "new" / ""), DataError);
  EXPECT_THROW(AtomicFile(folder / ""), DataError);
  EXPECT_THROW(AtomicFile(folder / "no" / "such"), DataError);
  EXPECT_EQ(folder.names(), std::set<std::string>{"pipe"});
}

TEST(AtomicFile, LetsTheLastOfSeveralWritersWin) {
  const Folder folder;
  std::vector<std::thread> writers;
  for (const char letter : {'a', 'b', 'c', 'd'}) {
    writers.emplace_back([&folder, letter] {
      for (int i = 0; i < 20; ++i)
        write_file_atomically(folder / "file", std::string(10000, letter));
    });
  }
  for (auto& writer : writers) writer.join();
  const std::string content = read_bytes(folder / "file");
  EXPECT_EQ(content, std::string(10000, content.at(0)));
  EXPECT_EQ(folder.names(), std::set<std::string>{"file"});
}

}  // namespace
}  // namespace reprise
