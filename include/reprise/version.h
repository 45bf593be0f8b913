// SPDX-License-Identifier: Apache-2.0
/// Version of this library; CMake reads it here.
#pragma once

#define REPRISE_VERSION_MAJOR 0
#define REPRISE_VERSION_MINOR 1
#define REPRISE_VERSION_PATCH 0
#define REPRISE_VERSION "0.1.0"
