// SPDX-License-Identifier: MIT
// weir.hpp — everything a user of the library needs: pages, nodes, fragments, pools, packets. Statistics
// stand in weir/stats/, ports and rings in weir/io/.
#pragma once

#include "weir/frag/frag_cache.hpp"
#include "weir/packet/packet.hpp"
#include "weir/packet/packet_source.hpp"
#include "weir/page/maintenance.hpp"
#include "weir/page/node_allocator.hpp"
#include "weir/page/page_allocator.hpp"
#include "weir/pool/page_pool.hpp"
