// SPDX-License-Identifier: MIT
// What depends on the environment of a process is in tests/stress/rseq_environment_test.cpp.
#include "weir/os/list_mode.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <thread>

#include "weir/base/atomic.hpp"
#include "weir/os/rseq_area.hpp"

namespace weir {
namespace {

TEST(ListMode, IsTheSameForAllWhoAskAtOnce) {
  constexpr std::size_t kThreads = 8;
  std::array<const ListMode*, kThreads> seen{};
  std::array<std::thread, kThreads> threads;
  Atomic<bool> go{false};
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads[i] = std::thread([&, i] {
      while (!go.load(memory_order_relaxed)) std::this_thread::yield();
      seen[i] = &list_mode();
    });
  }
  go.store(true, memory_order_relaxed);
  for (std::thread& thread : threads) thread.join();
  for (const ListMode* mode : seen) {
    EXPECT_EQ(mode, &list_mode());
  }
}

TEST(ListMode, HasAReason) { EXPECT_GT(std::strlen(list_mode().reason), 10U); }

TEST(ListMode, IsNotRseqInABuildWithoutSections) {
  if (kHasRseq) {
    GTEST_SKIP() << "sections are in this build";
  }
  EXPECT_NE(list_mode().form, ListForm::rseq);
}

TEST(ListMode, CannotBeChangedOnceDecided) {
  const ListMode mode = list_mode();
  for (const ListForm form : {ListForm::rseq, ListForm::locked, ListForm::off}) {
    EXPECT_EQ(force_list_mode(form).code, form == mode.form ? Errc::ok : Errc::in_use);
  }
  EXPECT_EQ(list_mode().form, mode.form);
}

TEST(ListMode, FormsHaveTheNamesThatWeirListsTakes) {
  EXPECT_STREQ(list_form_name(ListForm::rseq), "rseq");
  EXPECT_STREQ(list_form_name(ListForm::locked), "locked");
  EXPECT_STREQ(list_form_name(ListForm::off), "off");
}

}  // namespace
}  // namespace weir
