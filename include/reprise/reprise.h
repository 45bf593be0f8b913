// SPDX-License-Identifier: Apache-2.0
/// Checkpointing, rematerialisation and planning in one include: all of `Reprise::reprise` but
/// `checkpoint_modules.h`, which brings LibTorch's modules.
#pragma once

#include "reprise/checkpoint.h"
#include "reprise/linear_stack.h"
#include "reprise/plan.h"
#include "reprise/remat_plan.h"
#include "reprise/rematerializer.h"
#include "reprise/verify_gradients.h"
#include "reprise/version.h"
