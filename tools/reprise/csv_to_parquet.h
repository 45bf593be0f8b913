// SPDX-License-Identifier: Apache-2.0
/// CSV turned into Parquet.
#pragma once

#include <filesystem>

namespace reprise {

/// Reads `csv` and writes the same table to `parquet`. Throws `DataError` naming the file that
/// failed.
void convert_csv_to_parquet(const std::filesystem::path& csv, const std::filesystem::path& parquet);

}  // namespace reprise
