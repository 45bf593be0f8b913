// SPDX-License-Identifier: Apache-2.0
// Sizes of memory as text.
#include "byte_size.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

namespace reprise {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(ParseByteSize, TakesBytesAndUnits) {
  EXPECT_EQ(parse_byte_size("500000000"), 500'000'000);
  EXPECT_EQ(parse_byte_size("7B"), 7);
  EXPECT_EQ(parse_byte_size("64kB"), 64'000);
  EXPECT_EQ(parse_byte_size("64KiB"), 65'536);  // 64 * 1024
  EXPECT_EQ(parse_byte_size("3700MB"), 3'700'000'000);
  EXPECT_EQ(parse_byte_size("512MiB"), 536'870'912);  // 512 * 1024^2
  EXPECT_EQ(parse_byte_size("2GB"), 2'000'000'000);
  EXPECT_EQ(parse_byte_size("1.5GiB"), 1'610'612'736);  // 1.5 * 1024^3
  EXPECT_EQ(parse_byte_size("1TB"), 1'000'000'000'000);
  EXPECT_EQ(parse_byte_size("1TiB"), 1'099'511'627'776);  // 1024^4
  EXPECT_EQ(parse_byte_size("9223372036854775807"), kMost);
}

TEST(ParseByteSize, TakesAnyCaseAndABlankBeforeTheUnit) {
  EXPECT_EQ(parse_byte_size("2gb"), 2'000'000'000);
  EXPECT_EQ(parse_byte_size("2 GIB"), 2'147'483'648);  // 2 * 1024^3
  EXPECT_EQ(parse_byte_size("2KB"), 2'000);
}

TEST(ParseByteSize, LosesNoByteToAFraction) {
  EXPECT_EQ(parse_byte_size("4.35MB"), 4'350'000);
  EXPECT_EQ(parse_byte_size("0.29kB"), 290);
  EXPECT_EQ(parse_byte_size("1.1GiB"), 1'181'116'006);  // 1,181,116,006.4
  EXPECT_EQ(parse_byte_size("0.9999KiB"), 1'023);       // 1,023.8976
  EXPECT_EQ(parse_byte_size("1.0000000000000000001TB"), 1'000'000'000'000);
}

TEST(ParseByteSize, RefusesWhatIsNoSize) {
  for (const char* text : {"",
                           "MB",
                           "-1",
                           "-5MB",
                           "+5MB",
                           "0",
                           "0GB",
                           "0.0001kB",
                           "1.5",
                           "1.5B",
                           "1.MB",
                           ".5GB",
                           "64k",
                           "1M",
                           "5Mo",
                           "5 M B",
                           " 5MB",
                           "5MB ",
                           "1e9",
                           "0x10",
                           "five",
                           "1,5GB",
                           "5MB5",
                           "9223372036854775808",
                           "9223372036854775807kB",
                           "8388608TiB"}) {
    EXPECT_EQ(parse_byte_size(text), std::nullopt) << "'" << text << "'";
  }
  // 8388607 * 2^40 + floor(0.9999999 * 2^40)
  EXPECT_EQ(parse_byte_size("8388607.9999999TiB"), 9'223'372'036'854'665'856);
}

TEST(ByteSizeText, TakesTheLargestUnitThatDivides) {
  EXPECT_EQ(byte_size_text(536'870'912), "512MiB");
  EXPECT_EQ(byte_size_text(600'000'000), "600MB");
  EXPECT_EQ(byte_size_text(1'610'612'736), "1536MiB");
  EXPECT_EQ(byte_size_text(123'456'789), "123456789B");
}

RC_GTEST_PROP(ByteSizeText, ReadsBackAsTheSameNumber, ()) {
  const auto unit = *rc::gen::element<std::int64_t>(1, 1'000, 1'024, 1'000'000, 1'048'576,
                                                    1'000'000'000, 1'073'741'824);
  const auto count = *rc::gen::inRange<std::int64_t>(1, kMost / unit);
  RC_ASSERT(parse_byte_size(byte_size_text(count * unit)) == count * unit);
}

}  // namespace
}  // namespace reprise
