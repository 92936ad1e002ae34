// SPDX-License-Identifier: MIT
// zone/mobility.hpp — whether what a page holds can be carried elsewhere. Calls nothing.
#pragma once

namespace weir {

// Engines hand both out of pageblocks of their own as long as there are such: one page that must stay
// where it is keeps a whole pageblock from ever becoming free.
enum class Mobility : unsigned char { pinned, movable };
inline constexpr unsigned kMobilities = 2;

}  // namespace weir
