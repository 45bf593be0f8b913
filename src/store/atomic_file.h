// SPDX-License-Identifier: Apache-2.0
/// Write a file so that a reader, or a crash, sees the old content or the new one, never a part.
#pragma once

#include <filesystem>
#include <string_view>

namespace reprise {

/// Bytes written beside `path`, which replace it at `commit`.
///
/// The temporary file is `.<name>.<process>-<number>.tmp` in the same folder; it is removed when an
/// error occurs or when the object goes without a commit. A file that exists keeps its permissions,
/// a symbolic link its place. All errors are `DataError` naming `path` and the reason. Not
/// thread-safe; several objects may write the same path, and the last commit wins.
class AtomicFile {
 public:
  /// Throws when the folder cannot be written, or `path` exists and is no regular file.
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends `bytes`.
  void write(std::string_view bytes);

  /// Flushes to the device and renames into place. Nothing may be written afterwards.
  void commit();

 private:
  [[noreturn]] void fail(const char* step) const;
  void close_descriptor() noexcept;

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

/// Writes `bytes` to `path` as `AtomicFile` does.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

}  // namespace reprise
