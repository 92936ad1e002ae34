// SPDX-License-Identifier: MIT
#include "weir/base/result.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace weir {
namespace {

static_assert(!kOk.failed());
static_assert(Error{Errc::denied, "x"}.failed());

Result<int> half(int value) {
  if (value % 2 != 0) return {Errc::misaligned, "odd"};
  return value / 2;
}

Result<int> quarter(int value) {
  const Result<int> once = half(value);
  if (!once) return once.error();
  return half(once.value());
}

TEST(Result, HoldsAValueOrAnError) {
  Result<int> good = half(8);
  ASSERT_TRUE(good);
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(good.value(), 4);
  EXPECT_EQ(*good, 4);
  EXPECT_FALSE(good.error().failed());

  const Result<int> bad = half(7);
  EXPECT_FALSE(bad);
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, Errc::misaligned);
  EXPECT_STREQ(bad.error().what, "odd");
  EXPECT_EQ(bad.error().os_errno, 0);
}

TEST(Result, PassesAnErrorOnUnchanged) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_STREQ(quarter(6).error().what, "odd");
  const Error original{Errc::system, "somewhere", 5};
  const Result<int> passed = original;
  EXPECT_EQ(passed.error().code, Errc::system);
  EXPECT_EQ(passed.error().os_errno, 5);
}

TEST(Result, MovesOutWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(3);
  ASSERT_TRUE(made);
  EXPECT_EQ(*made.value(), 3);
  const std::unique_ptr<int> owned = std::move(made).value();
  EXPECT_EQ(*owned, 3);
}

TEST(Result, ReachesMembersByArrow) {
  Result<std::string> text = std::string("weir");
  EXPECT_EQ(text->size(), 4U);
  text->append("!");
  EXPECT_EQ(text.value(), "weir!");
}

TEST(Result, EveryErrorCodeHasASentenceOfItsOwn) {
  std::set<std::string> sentences;
  unsigned codes = 0;
  for (; codes <= static_cast<unsigned>(Errc::closed); ++codes) {
    sentences.insert(error_name(static_cast<Errc>(codes)));
  }
  EXPECT_EQ(sentences.size(), codes);
  EXPECT_FALSE(sentences.contains("unknown error"));
  EXPECT_STREQ(error_name(static_cast<Errc>(codes)), "unknown error");
}

}  // namespace
}  // namespace weir
