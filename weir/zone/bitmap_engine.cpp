// SPDX-License-Identifier: MIT
#include "weir/zone/bitmap_engine.hpp"

#include "weir/zone/bitmap_engine_give.hpp"
#include "weir/zone/bitmap_engine_isolate.hpp"
#include "weir/zone/bitmap_engine_life.hpp"
#include "weir/zone/bitmap_engine_take.hpp"
#include "weir/zone/bitmap_engine_trim.hpp"

namespace weir {

template class BasicBitmapEngine<Atomic>;

}  // namespace weir
