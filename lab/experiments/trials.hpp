// SPDX-License-Identifier: MIT
// lab/experiments/trials.hpp — an allocator dressed for any workload: the one place that knows all
// of them. Calls the templates beside it.
#pragma once

#include <memory>
#include <utility>

#include "lab/contenders/buffers.hpp"
#include "lab/experiments/bulk.hpp"
#include "lab/experiments/cross.hpp"
#include "lab/experiments/forward.hpp"
#include "lab/experiments/pair.hpp"
#include "lab/harness/trial.hpp"

namespace weir::lab {

template <Buffers B>
std::unique_ptr<Trial> make_trial(const TrialSetup& setup, std::shared_ptr<B> buffers) {
  switch (setup.workload) {
    case Workload::pair:
      return std::make_unique<PairTrial<B>>(std::move(buffers));
    case Workload::bulk:
      return std::make_unique<BulkTrial<B>>(std::move(buffers));
    case Workload::cross:
      return std::make_unique<CrossTrial<B>>(std::move(buffers));
    case Workload::forward:
      return std::make_unique<ForwardTrial<B>>(std::move(buffers), *setup.capture);
  }
  return nullptr;
}

}  // namespace weir::lab
