// SPDX-License-Identifier: Apache-2.0
#include "memory/process_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

namespace reprise::detail {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

/// The first whole number in a file; none where there is no such file, or it says "max".
std::optional<std::int64_t> number_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::int64_t number = 0;
  if (in >> number) return number;
  return std::nullopt;
}

/// The field of /proc/self/statm with that index, in bytes: 0 address space, 1 resident.
std::int64_t statm_bytes(int index) {
  std::ifstream in("/proc/self/statm");
  std::int64_t pages = 0;
  for (int i = 0; i <= index; ++i) in >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

std::int64_t available_of_machine() {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t kib = 0;
    if (words >> name >> kib && name == "MemAvailable:") return kib * 1024;
  }
  return kUnlimited;
}

/// Of one control group: its limit less what it uses, files that can go not counted.
std::int64_t available_of_group(const std::filesystem::path& group) {
  const auto limit = number_in(group / "memory.max");
  const auto used = number_in(group / "memory.current");
  if (!limit || !used) return kUnlimited;
  std::int64_t reclaimable = 0;
  std::ifstream in(group / "memory.stat");
  std::string name;
  for (std::int64_t bytes = 0; in >> name >> bytes;) {
    if (name == "inactive_file") reclaimable = bytes;
  }
  return std::max<std::int64_t>(0, *limit - *used + reclaimable);
}

/// The limits of all groups that the process is in, from its own up to the root.
std::int64_t available_of_groups() {
  std::ifstream in("/proc/self/cgroup");
  std::int64_t least = kUnlimited;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("0::/", 0) != 0) continue;  // version 2
    const std::filesystem::path root = "/sys/fs/cgroup";
    for (auto group = root / line.substr(4);; group = group.parent_path()) {
      least = std::min(least, available_of_group(group));
      if (group == root || group.string().size() <= root.string().size()) break;
    }
  }
  return least;
}

std::int64_t available_of_address_space() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  return std::max<std::int64_t>(0, static_cast<std::int64_t>(limit.rlim_cur) - statm_bytes(0));
}

}  // namespace

std::int64_t resident_bytes() {
  return statm_bytes(1);
}

std::int64_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

std::int64_t available_bytes() {
  return std::min({available_of_machine(), available_of_groups(), available_of_address_space()});
}

}  // namespace reprise::detail
