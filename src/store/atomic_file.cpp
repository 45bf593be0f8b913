// SPDX-License-Identifier: Apache-2.0
#include "store/atomic_file.h"

#include "reprise/errors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>

namespace reprise {
namespace {

/// Where the bytes must end up: the file behind a symbolic link, so that the link itself is not
/// replaced.
std::filesystem::path resolve_target(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) return path;
  if (!std::filesystem::is_regular_file(status)) {
    // A rename would put a plain file in the place of a device or a pipe.
    throw DataError("cannot write " + path.string() +
                    ": it exists and is no regular file; give another name");
  }
  const auto resolved = std::filesystem::canonical(path, error);
  return error ? path : resolved;
}

std::filesystem::path temporary_name(const std::filesystem::path& path) {
  static std::atomic<std::uint64_t> next_number{0};
  const auto suffix =
      "." + std::to_string(::getpid()) + "-" + std::to_string(next_number++) + ".tmp";
  return path.parent_path() / ("." + path.filename().string() + suffix);
}

/// Makes the rename survive a power failure. Some file systems cannot flush a folder; the content
/// is in place by then.
void flush_folder(const std::filesystem::path& folder) noexcept {
  const int descriptor =
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(resolve_target(path)) {
  if (!path_.has_filename()) {
    throw DataError("cannot write '" + path.string() +
                    "': it names a folder; give the name of a file");
  }
  do {  // a name left behind by a killed process of the same number is passed over
    temporary_ = temporary_name(path_);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && (errno == EEXIST || errno == EINTR));
  if (descriptor_ < 0) fail("create a temporary file beside it");
  struct stat existing{};
  if (::stat(path_.c_str(), &existing) == 0 &&
      ::fchmod(descriptor_, existing.st_mode & 07777) != 0) {
    const int reason = errno;
    close_descriptor();
    ::unlink(temporary_.c_str());
    errno = reason;
    fail("keep its permissions");
  }
}

AtomicFile::~AtomicFile() {
  close_descriptor();
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::string_view bytes) {
  constexpr std::size_t kLargestWrite = std::size_t{1}
                                        << 30;  // Linux writes at most 2 GiB in one call
  while (!bytes.empty()) {
    const auto written = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kLargestWrite));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail("flush");
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0) fail("close");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename the temporary file");
  temporary_.clear();
  flush_folder(path_.parent_path());
}

void AtomicFile::fail(const char* step) const {
  const std::error_code reason(errno, std::generic_category());
  throw DataError("cannot write " + path_.string() + ": could not " + step + ": " +
                  reason.message());
}

void AtomicFile::close_descriptor() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

void write_file_atomically(const std::filesystem::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace reprise
