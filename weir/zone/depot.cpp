// SPDX-License-Identifier: MIT
// zone/depot.cpp — the one instance of the depot that the library uses. The code is in the header,
// because a test runs the same code on atomics that stop before every step.
#include "weir/zone/depot.hpp"

namespace weir {

template class BasicDepot<Atomic>;

static_assert(Atomic<std::uint64_t>::is_always_lock_free);
static_assert(sizeof(Atomic<std::uint16_t>) == sizeof(std::uint16_t));
static_assert(StackHead{}.top() == kNoCluster);
static_assert(kDepotClustersMax < Depot::kMaxBodies);

}  // namespace weir
