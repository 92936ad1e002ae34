// SPDX-License-Identifier: MIT
#include "lab/harness/progress.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace weir::lab {
namespace {

// What is written to a stream in memory.
class Written {
 public:
  Written() : stream_(::open_memstream(&text_, &size_)) {}
  ~Written() {
    std::fclose(stream_);
    std::free(text_);
  }
  [[nodiscard]] std::FILE* stream() const { return stream_; }
  [[nodiscard]] std::string text() const {
    std::fflush(stream_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* stream_;
};

TEST(Progress, InALogThereIsALineARoundAndNoControlCharacter) {
  const Written written;
  Progress progress(written.stream(), false, 4);
  progress.begin("forward mix, round 1 of 2", "glibc");
  progress.end();
  EXPECT_EQ(written.text(), "");
  progress.round("forward mix, round 1 of 2");
  const std::string text = written.text();
  EXPECT_EQ(text.find("forward mix, round 1 of 2: done"), 0U);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.find('\033'), std::string::npos);
}

TEST(Progress, OnATerminalOneLineRewritesItselfAndIsTakenAway) {
  const Written written;
  {
    Progress progress(written.stream(), true, 4);
    progress.begin("round 1", "glibc");
    progress.end();
    progress.begin("round 1", "mimalloc");
    progress.round("round 1");
    EXPECT_EQ(written.text().find('\n'), std::string::npos);
    EXPECT_NE(written.text().find("(25 %"), std::string::npos);
  }
  EXPECT_TRUE(written.text().ends_with("\r\033[K"));
}

TEST(Progress, NothingIsLeftAtTheEnd) {
  Progress progress(nullptr, true, 2);
  EXPECT_EQ(progress.remaining().count(), 0);
  progress.begin("x", "y");
  progress.end();
  EXPECT_GE(progress.remaining().count(), 0);
  progress.end();
  EXPECT_EQ(progress.remaining().count(), 0);
}

}  // namespace
}  // namespace weir::lab
