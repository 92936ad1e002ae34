// SPDX-License-Identifier: MIT
#include "tests/support/address_space.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

namespace weir::test {
namespace {

TEST(AddressSpace, SeesOnePageThatStaysMapped) {
  if (kSanitized) {
    GTEST_SKIP() << "sanitizers map on their own";
  }
  std::vector<void*> leaked;
  EXPECT_TRUE(leaves_memory_mapped([&] {
    leaked.push_back(::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }));
  for (void* page : leaked) {
    ::munmap(page, 4096);
  }
}

TEST(AddressSpace, DoesNotSeeWhatIsUnmappedAgainOrGrowsOnce) {
  void* once = nullptr;
  EXPECT_FALSE(leaves_memory_mapped([&] {
    void* page = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (once == nullptr) {
      once = page;  // as a heap that grows
    } else {
      ::munmap(page, 4096);
    }
  }));
  ::munmap(once, 4096);
}

}  // namespace
}  // namespace weir::test
