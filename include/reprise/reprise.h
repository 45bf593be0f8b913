// SPDX-License-Identifier: Apache-2.0
/// Checkpointing and planning: all of `Reprise::reprise` in one include.
#pragma once

#include "reprise/checkpoint.h"
#include "reprise/linear_stack.h"
#include "reprise/plan.h"
#include "reprise/version.h"
