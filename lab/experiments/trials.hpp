// SPDX-License-Identifier: MIT
// lab/experiments/trials.hpp — an allocator dressed for any workload: the one place that knows all
// of them. Calls the templates beside it.
#pragma once

#include <memory>
#include <utility>

#include "lab/contenders/buffers.hpp"
#include "lab/experiments/bulk.hpp"
#include "lab/experiments/cross_cpu.hpp"
#include "lab/experiments/forward.hpp"
#include "lab/experiments/pairs.hpp"
#include "lab/harness/trial.hpp"

namespace weir::lab {

template <Buffers B>
TrialOrProblem make_trial(const TrialSetup& setup, std::shared_ptr<B> buffers) {
  switch (setup.workload) {
    case Workload::pairs:
      return {std::make_unique<PairsTrial<B>>(std::move(buffers)), ""};
    case Workload::bulk:
      return {std::make_unique<BulkTrial<B>>(std::move(buffers), setup.batch), ""};
    case Workload::cross_cpu:
      return {std::make_unique<CrossCpuTrial<B>>(std::move(buffers), setup.batch), ""};
    case Workload::forward:
      if constexpr (kForwards<B>) {
        return {std::make_unique<ForwardTrial<B>>(std::move(buffers), *setup.capture), ""};
      }
      break;
    case Workload::engines:
    case Workload::merge:
    case Workload::low_memory:
    case Workload::mixed_load:
    case Workload::fragmentation:
    case Workload::compaction:
      break;
  }
  return {nullptr, "it takes no part in this experiment"};
}

}  // namespace weir::lab
