// SPDX-License-Identifier: MIT
#include "lab/harness/interrupt.hpp"

#include <gtest/gtest.h>

#include <csignal>

namespace weir::lab {
namespace {

TEST(Interrupt, ASignalIsRememberedAndTheProcessGoesOn) {
  const InterruptGuard guard;
  EXPECT_FALSE(interrupted());
  std::raise(SIGINT);
  EXPECT_TRUE(interrupted());
}

TEST(Interrupt, SigtermCountsToo) {
  const InterruptGuard guard;
  std::raise(SIGTERM);
  EXPECT_TRUE(interrupted());
}

TEST(Interrupt, WithTheGuardTheMemoryOfItEnds) {
  {
    const InterruptGuard guard;
    std::raise(SIGINT);
    EXPECT_TRUE(interrupted());
  }
  EXPECT_FALSE(interrupted());
  const InterruptGuard guard;
  EXPECT_FALSE(interrupted());
}

TEST(Interrupt, WhatWasBeforeIsRestored) {
  struct sigaction before {};
  struct sigaction after {};
  sigaction(SIGINT, nullptr, &before);
  { const InterruptGuard guard; }
  sigaction(SIGINT, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST(InterruptDeathTest, TheSecondSignalKills) {
  EXPECT_EXIT(
      {
        const InterruptGuard guard;
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace weir::lab
