// SPDX-License-Identifier: MIT
#include "weir/os/options.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace weir {
namespace {

bool same(const Options& a, const Options& b) {
  return a.capacity == b.capacity && a.source == b.source && a.thp == b.thp && a.node == b.node &&
         a.reserve == b.reserve && a.limit == b.limit && a.soft_limit == b.soft_limit &&
         a.lists == b.lists && a.high == b.high && a.free_order0 == b.free_order0 &&
         a.engine == b.engine && a.merge == b.merge && a.depot == b.depot && a.cached == b.cached &&
         a.idle_trim == b.idle_trim;
}

Options parsed(std::string_view text) {
  Options options;
  const OptionProblem problem = parse_options(text, options);
  EXPECT_EQ(problem.code, Errc::ok) << text << ": " << problem.line.data();
  EXPECT_STREQ(problem.line.data(), "");
  return options;
}

TEST(Options, EmptyTextChangesNothing) { EXPECT_TRUE(same(parsed(""), Options{})); }

TEST(Options, ReadsEveryKind) {
  const Options options = parsed(
      "capacity=1G,source=memfd,thp=on,node=12,reserve=77,limit=88,soft_limit=80,lists=off,high="
      "256,free_"
      "order0=engine,"
      "merge=immediate,depot=640,cached=12345,idle_trim=250");
  EXPECT_EQ(options.capacity, 1_GiB);
  EXPECT_EQ(options.source, SourceChoice::memfd);
  EXPECT_EQ(options.thp, ThpChoice::on);
  EXPECT_EQ(options.node, NodeId{12});
  EXPECT_EQ(options.reserve, PageCount{77});
  EXPECT_EQ(options.limit, PageCount{88});
  EXPECT_EQ(options.soft_limit, PageCount{80});
  EXPECT_FALSE(options.lists);
  EXPECT_EQ(options.high, PageCount{256});
  EXPECT_EQ(options.free_order0, FreeOrder0::engine);
  EXPECT_EQ(options.merge, Merge::immediate);
  EXPECT_EQ(options.depot, PageCount{640});
  EXPECT_EQ(options.cached, PageCount{12345});
  EXPECT_EQ(options.idle_trim, std::chrono::milliseconds{250});
}

TEST(Options, ReadsEverySizeSuffixAndBothEndsOfTheRange) {
  EXPECT_EQ(parsed("capacity=4096").capacity, 4_KiB);
  EXPECT_EQ(parsed("capacity=4K").capacity, 4_KiB);
  EXPECT_EQ(parsed("capacity=3M").capacity, 3_MiB);
  EXPECT_EQ(parsed("capacity=1024G").capacity, 1024_GiB);
  EXPECT_EQ(parsed("capacity=0008K").capacity, 8_KiB);
  EXPECT_EQ(parsed("reserve=0,high=0").high, PageCount{0});
  EXPECT_EQ(parsed("cached=0").cached, PageCount{0});
  EXPECT_EQ(parsed("idle_trim=0").idle_trim, std::chrono::milliseconds{0});
  EXPECT_EQ(parsed("cached=268435456,depot=268435456").depot, PageCount{kMaxFrames});
}

TEST(Options, ReadsEveryChoice) {
  for (const auto choice : {SourceChoice::anonymous, SourceChoice::hugetlb, SourceChoice::memfd}) {
    EXPECT_EQ(parsed(std::string("source=") + choice_name(choice)).source, choice);
  }
  for (const auto choice : {ThpChoice::system, ThpChoice::on, ThpChoice::off}) {
    EXPECT_EQ(parsed(std::string("thp=") + choice_name(choice)).thp, choice);
  }
  for (const auto choice : {FreeOrder0::list, FreeOrder0::engine}) {
    EXPECT_EQ(parsed(std::string("free_order0=") + choice_name(choice)).free_order0, choice);
  }
  for (const auto choice : {Merge::deferred, Merge::immediate}) {
    EXPECT_EQ(parsed(std::string("merge=") + choice_name(choice)).merge, choice);
  }
}

TEST(Options, KeepsWhatTheTextDoesNotName) {
  Options options;
  options.reserve = PageCount{5};
  options.thp = ThpChoice::off;
  EXPECT_EQ(parse_options("capacity=8M", options).code, Errc::ok);
  EXPECT_EQ(options.reserve, PageCount{5});
  EXPECT_EQ(options.thp, ThpChoice::off);
  EXPECT_EQ(options.capacity, 8_MiB);
}

struct Bad {
  const char* text;
  const char* line;
};
const Bad kBad[] = {
    {"capacity=", "option \"capacity\" with value \"\"; expected a size from 4K to 1024G"},
    {"capacity=0", "option \"capacity\" with value \"0\"; expected a size from 4K to 1024G"},
    {"capacity=4095", "option \"capacity\" with value \"4095\"; expected a size from 4K to 1024G"},
    {"capacity=1025G",
     "option \"capacity\" with value \"1025G\"; expected a size from 4K to 1024G"},
    {"capacity=-1", "option \"capacity\" with value \"-1\"; expected a size from 4K to 1024G"},
    {"capacity=+1M", "option \"capacity\" with value \"+1M\"; expected a size from 4K to 1024G"},
    {"capacity=1MB", "option \"capacity\" with value \"1MB\"; expected a size from 4K to 1024G"},
    {"capacity=1 M", "option \"capacity\" with value \"1 M\"; expected a size from 4K to 1024G"},
    {"capacity= 1M", "option \"capacity\" with value \" 1M\"; expected a size from 4K to 1024G"},
    {"capacity=M", "option \"capacity\" with value \"M\"; expected a size from 4K to 1024G"},
    {"capacity=0x1000",
     "option \"capacity\" with value \"0x1000\"; expected a size from 4K to 1024G"},
    {"capacity=1.5G", "option \"capacity\" with value \"1.5G\"; expected a size from 4K to 1024G"},
    {"capacity=18446744073709551616",
     "option \"capacity\" with value \"18446744073709551616\"; expected a size from 4K to 1024G"},
    {"capacity=18014398509481984K",
     "option \"capacity\" with value \"18014398509481984K\"; expected a size from 4K to 1024G"},
    {"capacity=17179869185G",
     "option \"capacity\" with value \"17179869185G\"; expected a size from 4K to 1024G"},
    {"source=hugepages",
     "option \"source\" with value \"hugepages\"; expected anonymous, hugetlb or memfd"},
    {"source=", "option \"source\" with value \"\"; expected anonymous, hugetlb or memfd"},
    {"source=MEMFD",
     "option \"source\" with value \"MEMFD\"; expected anonymous, hugetlb or memfd"},
    {"thp=always", "option \"thp\" with value \"always\"; expected system, on or off"},
    {"thp=o", "option \"thp\" with value \"o\"; expected system, on or off"},
    {"reserve=-1",
     "option \"reserve\" with value \"-1\"; expected a number of frames from 0 to 268435456"},
    {"reserve=1K",
     "option \"reserve\" with value \"1K\"; expected a number of frames from 0 to 268435456"},
    {"reserve=268435457",
     "option \"reserve\" with value \"268435457\"; expected a number of frames from 0 to "
     "268435456"},
    {"high=257", "option \"high\" with value \"257\"; expected a number of frames from 0 to 256"},
    {"depot=268435457",
     "option \"depot\" with value \"268435457\"; expected a number of frames from 0 to 268435456"},
    {"cached=some",
     "option \"cached\" with value \"some\"; expected a number of frames from 0 to 268435456"},
    {"idle_trim=soon",
     "option \"idle_trim\" with value \"soon\"; expected milliseconds from 0 to 86400000"},
    {"idle_trim=86400001",
     "option \"idle_trim\" with value \"86400001\"; expected milliseconds from 0 to 86400000"},
    {"merge=later",
     "option \"merge\" with value \"later\"; expected deferred, immediate, skip or clusters"},
    {"lists=yes", "option \"lists\" with value \"yes\"; expected on or off"},
    {"lists=1", "option \"lists\" with value \"1\"; expected on or off"},
    {"free_order0=zone", "option \"free_order0\" with value \"zone\"; expected list or engine"},
    {"lists=a=b", "option \"lists\" with value \"a=b\"; expected on or off"},
    {"lists=on,lists=on",
     "option \"lists\" with value \"on\"; it was given before, once is enough"},
    {"capacity=1M,thp=on,capacity=2M",
     "option \"capacity\" with value \"2M\"; it was given before, once is enough"},
    {"color=red",
     "unknown option \"color\" with value \"red\"; known: capacity, source, thp, node, reserve, "
     "limit, "
     "soft_limit, lists, "
     "high, free_order0, engine, merge, depot, cached, idle_trim"},
    {"=1",
     "unknown option \"\" with value \"1\"; known: capacity, source, thp, node, reserve, limit, "
     "soft_limit, lists, high, "
     "free_order0, engine, merge, depot, cached, idle_trim"},
    {" thp=on",
     "unknown option \" thp\" with value \"on\"; known: capacity, source, thp, node, reserve, "
     "limit, "
     "soft_limit, lists, "
     "high, free_order0, engine, merge, depot, cached, idle_trim"},
    {"Capacity=1M",
     "unknown option \"Capacity\" with value \"1M\"; known: capacity, source, thp, node, reserve, "
     "limit, "
     "soft_limit, lists, "
     "high, free_order0, engine, merge, depot, cached, idle_trim"},
    {"thp",
     "option \"thp\" has no value; write name=value, names: capacity, source, thp, node, reserve, "
     "limit, "
     "soft_limit, lists, "
     "high, free_order0, engine, merge, depot, cached, idle_trim"},
    {",",
     "option \"\" has no value; write name=value, names: capacity, source, thp, node, reserve, "
     "limit, "
     "soft_limit, lists, "
     "high, free_order0, engine, merge, depot, cached, idle_trim"},
    {"thp=on,",
     "option \"\" has no value; write name=value, names: capacity, source, thp, node, reserve, "
     "limit, "
     "soft_limit, lists, "
     "high, free_order0, engine, merge, depot, cached, idle_trim"},
    {"thp=on,,lists=on",
     "option \"\" has no value; write name=value, names: capacity, source, thp, node, reserve, "
     "limit, "
     "soft_limit, lists, "
     "high, free_order0, engine, merge, depot, cached, idle_trim"},
};

TEST(Options, EveryBadTextIsOneLineThatNamesOptionValueAndChoices) {
  for (const Bad& bad : kBad) {
    Options options;
    options.reserve = PageCount{9};
    const Options before = options;
    const OptionProblem problem = parse_options(bad.text, options);
    EXPECT_EQ(problem.code, Errc::bad_option) << bad.text;
    EXPECT_STREQ(problem.line.data(), bad.line) << bad.text;
    EXPECT_TRUE(same(options, before)) << bad.text << " changed the options";
  }
}

TEST(Options, AGoodStartDoesNotSurviveABadEnd) {
  Options options;
  EXPECT_EQ(parse_options("capacity=1G,thp=on,lists=perhaps", options).code, Errc::bad_option);
  EXPECT_TRUE(same(options, Options{}));
}

TEST(Options, ALongOrUnprintableValueStaysOneShortLine) {
  Options options;
  const OptionProblem problem =
      parse_options("thp=" + std::string(10'000, 'x') + "\n\x1b[31m", options);
  EXPECT_STREQ(
      problem.line.data(),
      "option \"thp\" with value \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\"; expected system, "
      "on or off");
  const OptionProblem control = parse_options("thp=a\nb\x1b\x80", options);
  EXPECT_STREQ(control.line.data(),
               "option \"thp\" with value \"a?b??\"; expected system, on or off");
}

TEST(Options, ANodeIsAnyOrANumber) {
  for (std::int32_t number = 0; number <= kMaxNode; ++number) {
    const std::string text = std::to_string(number);
    EXPECT_EQ(parsed("node=" + text).node, NodeId{number});
    EXPECT_EQ(choice_name(NodeId{number}), text);
  }
  EXPECT_EQ(parsed("node=any").node, kAnyNode);
  EXPECT_STREQ(choice_name(kAnyNode), "any");
  EXPECT_STREQ(choice_name(NodeId{kMaxNode + 1}), "unknown");
  EXPECT_STREQ(choice_name(NodeId{-2}), "unknown");
  for (const char* bad : {"-1", "1024", "", "one", "4294967296", "1 "}) {
    Options options;
    const OptionProblem problem = parse_options(std::string("node=") + bad, options);
    EXPECT_EQ(problem.code, Errc::bad_option) << bad;
    EXPECT_EQ(options.node, kAnyNode);
    EXPECT_EQ(std::string(problem.line.data()),
              std::string("option \"node\" with value \"") + bad +
                  "\"; expected any, or the number of a node from 0 to 1023");
  }
}

TEST(Options, TextOfOptionsReadsBackAsTheSameOptions) {
  EXPECT_STREQ(
      options_text(Options{}).data(),
      "capacity=256M,source=anonymous,thp=system,node=any,reserve=0,limit=0,soft_limit=0,"
      "lists=on,high=0,"
      "free_order0=list,engine=bitmap,merge=deferred,depot=0,cached=268435456,idle_trim=10000");
  Options odd;
  odd.capacity = Bytes{(std::uint64_t{1} << 40) - 1};
  odd.source = SourceChoice::hugetlb;
  odd.thp = ThpChoice::off;
  odd.node = NodeId{kMaxNode};
  odd.reserve = PageCount{kMaxFrames};
  odd.limit = PageCount{kMaxFrames};
  odd.soft_limit = PageCount{1};
  odd.lists = false;
  odd.high = PageCount{kListCapacityMax};
  odd.free_order0 = FreeOrder0::engine;
  odd.engine = EngineChoice::bitmap;
  odd.merge = Merge::immediate;
  odd.depot = PageCount{kMaxFrames};
  odd.cached = PageCount{1};
  EXPECT_TRUE(same(parsed(options_text(odd).data()), odd));
}

class OptionsFromEnvironment : public testing::Test {
 protected:
  void SetUp() override {
    const char* set = std::getenv("WEIR_OPTIONS");
    had_ = set != nullptr;
    old_ = had_ ? set : "";
  }
  void TearDown() override {
    if (had_) {
      setenv("WEIR_OPTIONS", old_.c_str(), 1);
    } else {
      unsetenv("WEIR_OPTIONS");
    }
  }

 private:
  bool had_ = false;
  std::string old_;
};

TEST_F(OptionsFromEnvironment, TheLongestLineIsWhole) {
  const std::string text = std::string(50, 'n') + "=" + std::string(50, 'v');
  setenv("WEIR_OPTIONS", text.c_str(), 1);
  Options options;
  EXPECT_STREQ(
      options_from_environment(options).line.data(),
      "WEIR_OPTIONS: unknown option \"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...\" with value "
      "\"vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv...\"; known: capacity, source, thp, node, reserve, "
      "limit, soft_limit, lists, high, free_order0, engine, merge, depot, cached, idle_trim");
  setenv("WEIR_OPTIONS", std::string(50, 'n').c_str(), 1);
  EXPECT_STREQ(
      options_from_environment(options).line.data(),
      "WEIR_OPTIONS: option \"nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn...\" has no value; write "
      "name=value, names: capacity, source, thp, node, reserve, limit, soft_limit, lists, high, "
      "free_order0, engine, merge, "
      "depot, cached, idle_trim");
}

TEST_F(OptionsFromEnvironment, UnsetOrEmptyMeansNothingToDo) {
  Options options;
  unsetenv("WEIR_OPTIONS");
  EXPECT_EQ(options_from_environment(options).code, Errc::ok);
  setenv("WEIR_OPTIONS", "", 1);
  EXPECT_EQ(options_from_environment(options).code, Errc::ok);
  EXPECT_TRUE(same(options, Options{}));
}

TEST_F(OptionsFromEnvironment, IsReadLikeAnyOtherText) {
  Options options;
  setenv("WEIR_OPTIONS", "capacity=64M,thp=off", 1);
  EXPECT_EQ(options_from_environment(options).code, Errc::ok);
  EXPECT_EQ(options.capacity, 64_MiB);
  EXPECT_EQ(options.thp, ThpChoice::off);
}

TEST_F(OptionsFromEnvironment, AProblemNamesTheVariable) {
  Options options;
  setenv("WEIR_OPTIONS", "thp=maybe", 1);
  const OptionProblem problem = options_from_environment(options);
  EXPECT_EQ(problem.code, Errc::bad_option);
  EXPECT_STREQ(problem.line.data(),
               "WEIR_OPTIONS: option \"thp\" with value \"maybe\"; expected system, on or off");
}

}  // namespace
}  // namespace weir
