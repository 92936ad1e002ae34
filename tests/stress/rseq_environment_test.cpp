// SPDX-License-Identifier: MIT
// Restartable sequences in the surroundings a process may find itself in: a C library that registers
// none, a kernel or a sandbox that refuses, a library that was first, valgrind. The mode of the lists
// is decided once in a process, so each case is this program started anew with `--steps` and a list
// of steps, each of which prints one line.
#include <gtest/gtest.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "tests/support/process.hpp"
#include "tests/support/seccomp.hpp"
#include "tests/support/slow_section.hpp"
#include "weir/os/fence.hpp"
#include "weir/os/list_mode.hpp"
#include "weir/os/rseq_area.hpp"
#include "weir/page/page_allocator.hpp"

namespace weir {
namespace {

// ---- steps: the child ----------------------------------------------------------------------------

// What another library would keep.
constinit thread_local RseqArea t_foreign_area;

int register_foreign_area() {
  return ::syscall(SYS_rseq, &t_foreign_area, sizeof t_foreign_area, 0, kRseqSignature) == 0
             ? 0
             : errno;
}

void print_error(const char* step, const Error& error) {
  std::printf("%s: %s", step, error_name(error.code));
  std::printf(error.os_errno != 0 ? ", %s\n" : "\n", std::strerror(error.os_errno));
}

void print_area() {
  const char* owner = "another";
  if (&rseq_area::current() == &t_rseq_area) {
    owner = "weir's";
  } else if (rseq_area::g_offset == __rseq_offset) {
    owner = "the C library's";
  }
  std::printf("area: %s, %s\n", owner, rseq_area::thread_registered() ? "registered" : "stopped");
}

// One section of this thread; it is restarted until it ends.
void print_section() {
  const std::uint64_t stop = 0;
  std::uint64_t total = 0;
  test::SectionEnd end = test::SectionEnd::aborted;
  while (end == test::SectionEnd::aborted) {
    end = test::add_slowly(&stop, &total, 1);
  }
  std::printf("section: %s\n", total == 1 ? "committed" : "lost");
}

// Makes this thread one whose registration by the C library failed. (The C library itself gives up
// the process when the kernel refuses a thread after the first.)
int unregister_c_library_area() {
  void* area = static_cast<std::byte*>(__builtin_thread_pointer()) + __rseq_offset;
  return ::syscall(SYS_rseq, area, sizeof(RseqArea), RSEQ_FLAG_UNREGISTER, kRseqSignature) == 0
             ? 0
             : errno;
}

// A new thread asks twice to be registered: it is refused once.
void print_thread(int (*before_all)() = nullptr) {
  std::thread([before_all] {
    if (before_all != nullptr && before_all() != 0) std::printf("thread: not prepared\n");
    const bool before = rseq_area::thread_registered();
    errno = ERANGE;
    const bool asked = rseq_area::register_thread();
    const bool again = rseq_area::register_thread();
    const bool kept = errno == ERANGE;
    const bool after = rseq_area::thread_registered();
    std::printf("thread: %s, then %s, %llu refused%s\n", before ? "registered" : "stopped",
                asked && again && after      ? "registered"
                : !asked && !again && !after ? "refused"
                                             : "confused",
                static_cast<unsigned long long>(rseq_area::refused_threads()),
                kept ? "" : ", errno lost");
  }).join();
}

// Nothing of the area is written by the decision, and by a section only rseq_cs.
void print_untouched() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  ::sched_setaffinity(0, sizeof one, &one);  // so that the kernel writes the same CPU each time
  const auto* area = static_cast<const std::byte*>(__builtin_thread_pointer()) + __rseq_offset;
  const auto snapshot = [area] {
    RseqArea copy;
    std::memcpy(&copy, area, sizeof copy);
    return copy;
  };
  const auto same = [](const RseqArea& a, const RseqArea& b) {
    return a.cpu_id_start == b.cpu_id_start && a.cpu_id == b.cpu_id && a.flags == b.flags &&
           a.node_id == b.node_id && a.mm_cid == b.mm_cid && a.unused == b.unused;
  };
  const RseqArea at_first = snapshot();
  static_cast<void>(list_mode());
  const RseqArea decided = snapshot();
  const bool decision = same(at_first, decided) && decided.rseq_cs == at_first.rseq_cs;
  print_section();
  const RseqArea after = snapshot();
  std::printf("untouched: %s, %s\n", decision ? "by the decision" : "NOT by the decision",
              same(decided, after) ? "but for rseq_cs" : "NOT by a section");
}

void print_fork() {
  std::printf("fork: %d\n", test::run_in_child([] {
                if (fence::all().failed()) return 1;
                if (!rseq_area::thread_registered()) return 2;
                int status = 0;
                std::thread([&status] {
                  if (!rseq_area::thread_registered() && !rseq_area::register_thread()) status = 3;
                }).join();
                return status;
              }));
}

// A program of the plainest kind.
void print_pages() {
  PageAllocator pages{{.capacity = kMiB * 8}};
  std::array<PageRef, 300> held;
  std::size_t got = 0;
  for (int round = 0; round < 3; ++round) {
    got = 0;
    for (PageRef& page : held) {
      page = pages.alloc();
      got += page ? 1 : 0;
    }
    for (PageRef& page : held) page.reset();
  }
  std::printf("pages: %zu\n", got);
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

void refuse(const char* step, unsigned number, std::string_view error) {
  if (!test::refuse_syscall(number, std::atoi(error.data()))) std::printf("%s: no filter\n", step);
}

bool run_step(std::string_view step) {
  if (take_prefix(step, "refuse-rseq=")) {
    refuse("refuse-rseq", SYS_rseq, step);
  } else if (take_prefix(step, "refuse-membarrier=")) {
    refuse("refuse-membarrier", SYS_membarrier, step);
  } else if (step == "mode") {
    std::printf("mode: %s: %s\n", list_form_name(list_mode().form), list_mode().reason);
  } else if (take_prefix(step, "force=")) {
    for (const ListForm form : {ListForm::rseq, ListForm::locked, ListForm::off}) {
      if (step == list_form_name(form)) print_error("force", force_list_mode(form));
    }
  } else if (step == "area") {
    print_area();
  } else if (step == "section") {
    print_section();
  } else if (step == "thread") {
    print_thread();
  } else if (step == "foreign-thread") {
    print_thread(register_foreign_area);
  } else if (step == "unregistered-thread") {
    print_thread(unregister_c_library_area);
  } else if (step == "unregister") {
    std::printf("unregister: %d\n", unregister_c_library_area());
  } else if (step == "foreign") {
    std::printf("foreign: %d\n", register_foreign_area());
  } else if (step == "fence") {
    const std::uint64_t before = fence::count();
    print_error("fence", fence::all());
    print_error("fence", fence::cpu(CpuId{0}));
    std::printf("fences: %llu\n", static_cast<unsigned long long>(fence::count() - before));
  } else if (step == "no-visits") {
    fence::visits_for_test(false);
  } else if (step == "untouched") {
    print_untouched();
  } else if (step == "fork") {
    print_fork();
  } else if (step == "pages") {
    print_pages();
  } else {
    return false;
  }
  return true;
}

int run_steps(int count, char** steps) {
  for (int i = 0; i < count; ++i) {
    if (!run_step(steps[i])) {
      std::printf("unknown step: %s\n", steps[i]);
      return 2;
    }
    std::fflush(stdout);
  }
  return 0;
}

// ---- cases: the parent ---------------------------------------------------------------------------

constexpr const char* kWithoutCLibrary = "GLIBC_TUNABLES=glibc.pthread.rseq=0";

std::string own_path() {
  std::array<char, 4096> path{};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  return length > 0 ? path.data() : "";
}

// Runs `command`, returns what it printed on both streams, and its status if that is not 0.
std::string output_of(const std::string& command) {
  std::string output;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return "popen failed";
  std::array<char, 512> line{};
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) output += line.data();
  const int status = ::pclose(pipe);
  return status == 0 ? output : output + "status " + std::to_string(status) + "\n";
}

std::string run(const std::string& environment, const std::string& steps) {
  return output_of("env -u WEIR_LISTS -u WEIR_OPTIONS " + environment + " '" + own_path() +
                   "' --steps " + steps);
}

// The area stands from the start of the program; a mode other than rseq does not use it.
const std::string kAreaAtStart =
    __rseq_size != 0 ? "area: the C library's, registered\n" : "area: weir's, stopped\n";

class RseqEnvironment : public testing::Test {
 protected:
  void SetUp() override {
    if (!kHasRseq) GTEST_SKIP() << "no sections in this build";
    const long commands = ::syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    if (commands < 0 || (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ) == 0) {
      GTEST_SKIP() << "membarrier has no rseq command here";
    }
    if (::syscall(SYS_rseq, nullptr, 0, 0, 0) < 0 && errno == ENOSYS) {
      GTEST_SKIP() << "no rseq(2) here";
    }
  }
};

TEST(RseqEnvironmentOfABuildWithoutSections, IsNotLookedAt) {
  if (kHasRseq) GTEST_SKIP() << "sections are in this build";
  if (test::emulated()) GTEST_SKIP() << "a program cannot start itself again here";
  EXPECT_EQ(run("", "mode").rfind("mode: locked: ", 0), 0U);
  EXPECT_EQ(run("", "force=rseq force=off mode"),
            "force: not supported here\nforce: ok\nmode: off: asked for by the program\n");
  EXPECT_NE(run("WEIR_LISTS=rseq", "mode").find("weir: notice: WEIR_LISTS=rseq cannot be had"),
            std::string::npos);
  EXPECT_EQ(run("WEIR_LISTS=off", "mode"), "mode: off: asked for by WEIR_LISTS\n");
}

TEST_F(RseqEnvironment, TheAreaOfTheCLibraryIsUsedWhereThereIsOne) {
  if (__rseq_size == 0) GTEST_SKIP() << "the C library registers none here";
  EXPECT_EQ(run("", "area mode area section thread fence fork"),
            "area: the C library's, registered\n"
            "mode: rseq: rseq registered by the C library, membarrier ready\n"
            "area: the C library's, registered\n"
            "section: committed\n"
            "thread: registered, then registered, 0 refused\n"
            "fence: ok\nfence: ok\nfences: 2\n"
            "fork: 0\n");
}

TEST_F(RseqEnvironment, TheOwnAreaIsUsedWhereTheCLibraryHasNone) {
  EXPECT_EQ(run(kWithoutCLibrary, "area mode area section thread fence fork"),
            "area: weir's, stopped\n"
            "mode: rseq: rseq registered by weir, membarrier ready\n"
            "area: weir's, registered\n"
            "section: committed\n"
            "thread: stopped, then registered, 0 refused\n"
            "fence: ok\nfence: ok\nfences: 2\n"
            "fork: 0\n");
}

TEST_F(RseqEnvironment, OfTheAreaOnlyTheDescriptorsAddressIsWritten) {
  if (__rseq_size == 0) GTEST_SKIP() << "the C library registers none here";
  EXPECT_EQ(run("", "untouched"),
            "section: committed\nuntouched: by the decision, but for rseq_cs\n");
}

TEST_F(RseqEnvironment, AKernelWithoutRseqMakesListsLocked) {
  EXPECT_EQ(run(kWithoutCLibrary, "refuse-rseq=38 mode area thread"),
            "mode: locked: the C library has no rseq and rseq(2) refused: "
            "Function not implemented\n"
            "area: weir's, stopped\n"
            "thread: stopped, then refused, 0 refused\n");
}

TEST_F(RseqEnvironment, ASandboxThatForbidsRseqMakesListsLocked) {
  EXPECT_EQ(run(kWithoutCLibrary, "refuse-rseq=1 mode area"),
            "mode: locked: the C library has no rseq and rseq(2) refused: "
            "Operation not permitted\n"
            "area: weir's, stopped\n");
  EXPECT_EQ(run(kWithoutCLibrary, "refuse-rseq=12 mode"),
            "mode: locked: the C library has no rseq and rseq(2) refused with an unusual error\n");
}

TEST_F(RseqEnvironment, AFilterAgainstRseqDoesNotMatterWhereTheCLibraryWasFirst) {
  if (__rseq_size == 0) GTEST_SKIP() << "the C library registers none here";
  EXPECT_EQ(run("", "refuse-rseq=38 mode area section"),
            "mode: rseq: rseq registered by the C library, membarrier ready\n"
            "area: the C library's, registered\n"
            "section: committed\n");
}

TEST_F(RseqEnvironment, AThreadThatTheCLibraryCouldNotRegisterIsLeftOutAndCounted) {
  if (__rseq_size == 0) GTEST_SKIP() << "the C library registers none here";
  EXPECT_EQ(run("", "mode unregistered-thread thread"),
            "mode: rseq: rseq registered by the C library, membarrier ready\n"
            "thread: stopped, then refused, 1 refused\n"
            "thread: registered, then registered, 1 refused\n");
  EXPECT_EQ(run("", "unregister mode area"),
            "unregister: 0\n"
            "mode: locked: the C library registers rseq, but not for the thread that decided\n"
            "area: the C library's, stopped\n");
}

TEST_F(RseqEnvironment, MembarrierRefusedMakesListsLocked) {
  for (const std::string environment : {"", kWithoutCLibrary}) {
    const std::string area =
        environment.empty() ? kAreaAtStart : std::string("area: weir's, stopped\n");
    EXPECT_EQ(
        run(environment, "refuse-membarrier=38 mode area"),
        "mode: locked: membarrier refuses its rseq command: Function not implemented\n" + area);
    EXPECT_EQ(run(environment, "refuse-membarrier=1 no-visits mode area fence"),
              "mode: locked: membarrier refuses its rseq command: Operation not permitted\n" +
                  area +
                  "fence: system error, Operation not permitted\n"
                  "fence: system error, Operation not permitted\n"
                  "fences: 0\n");
  }
}

TEST_F(RseqEnvironment, AFilterInstalledLaterLeavesNewThreadsOutAndCountsThem) {
  EXPECT_EQ(run(kWithoutCLibrary, "mode thread refuse-rseq=1 thread thread area section fence"),
            "mode: rseq: rseq registered by weir, membarrier ready\n"
            "thread: stopped, then registered, 0 refused\n"
            "thread: stopped, then refused, 1 refused\n"
            "thread: stopped, then refused, 2 refused\n"
            "area: weir's, registered\n"
            "section: committed\n"
            "fence: ok\nfence: ok\nfences: 2\n");
}

TEST_F(RseqEnvironment, AFenceRefusedLaterIsReplacedByVisits) {
  for (const std::string refusal : {"refuse-membarrier=1", "refuse-membarrier=22"}) {
    EXPECT_EQ(run("", "mode " + refusal + " fence section"),
              "mode: rseq: rseq registered by the C library, membarrier ready\n"
              "fence: ok\nfence: ok\nfences: 2\n"
              "section: committed\n");
  }
}

TEST_F(RseqEnvironment, AFenceRefusedLaterSaysSo) {
  EXPECT_EQ(run(kWithoutCLibrary, "mode fence no-visits refuse-membarrier=1 fence"),
            "mode: rseq: rseq registered by weir, membarrier ready\n"
            "fence: ok\nfence: ok\nfences: 2\n"
            "fence: system error, Operation not permitted\n"
            "fence: system error, Operation not permitted\n"
            "fences: 0\n");
  // An old kernel's answer to the flag is not taken for a fence either.
  EXPECT_EQ(run(kWithoutCLibrary, "mode no-visits refuse-membarrier=22 fence"),
            "mode: rseq: rseq registered by weir, membarrier ready\n"
            "fence: system error, Invalid argument\n"
            "fence: system error, Invalid argument\n"
            "fences: 0\n");
}

TEST_F(RseqEnvironment, AFenceThatWasNeverEnabledIsAnError) {
  EXPECT_EQ(run("", "no-visits fence"),
            "fence: system error, Operation not permitted\n"
            "fence: system error, Operation not permitted\n"
            "fences: 0\n");
}

TEST_F(RseqEnvironment, AnAreaThatAnotherLibraryRegisteredFirstIsLeftAlone) {
  EXPECT_EQ(run(kWithoutCLibrary, "foreign mode area thread pages"),
            "foreign: 0\n"
            "mode: locked: the C library has no rseq and another library registered its own\n"
            "area: weir's, stopped\n"
            "thread: stopped, then refused, 0 refused\n"
            "pages: 300\n");
}

TEST_F(RseqEnvironment, AThreadWhoseAreaIsAnotherLibrarysIsLeftOutAndCounted) {
  EXPECT_EQ(run(kWithoutCLibrary, "mode foreign-thread thread"),
            "mode: rseq: rseq registered by weir, membarrier ready\n"
            "thread: stopped, then refused, 1 refused\n"
            "thread: stopped, then registered, 1 refused\n");
}

TEST_F(RseqEnvironment, WeirListsChooses) {
  EXPECT_EQ(run("WEIR_LISTS=locked", "mode area"),
            "mode: locked: asked for by WEIR_LISTS\n" + kAreaAtStart);
  EXPECT_EQ(run("WEIR_LISTS=off", "mode area"),
            "mode: off: asked for by WEIR_LISTS\n" + kAreaAtStart);
  EXPECT_EQ(run("WEIR_LISTS=rseq", "mode").rfind("mode: rseq: rseq registered by", 0), 0U);
}

TEST_F(RseqEnvironment, WeirListsThatMeansNothingIsReportedAndIgnored) {
  EXPECT_EQ(
      run("WEIR_LISTS=fast", "mode mode")
          .rfind("weir: notice: WEIR_LISTS is none of rseq, locked and off: ignored\nmode: rseq",
                 0),
      0U);
  EXPECT_EQ(run("WEIR_LISTS=", "mode").rfind("mode: rseq: ", 0), 0U);
}

TEST_F(RseqEnvironment, RseqAskedForInVainIsReportedOnce) {
  const std::string environment = std::string("WEIR_LISTS=rseq ") + kWithoutCLibrary;
  EXPECT_EQ(run(environment, "refuse-rseq=38 mode mode"),
            "weir: notice: WEIR_LISTS=rseq cannot be had, the lists are locked: the C library has "
            "no rseq and rseq(2) refused: Function not implemented\n"
            "mode: locked: the C library has no rseq and rseq(2) refused: "
            "Function not implemented\n"
            "mode: locked: the C library has no rseq and rseq(2) refused: "
            "Function not implemented\n");
}

TEST_F(RseqEnvironment, TheProgramMayChooseBeforeTheDecision) {
  EXPECT_EQ(run("WEIR_LISTS=rseq", "force=locked mode force=rseq force=locked"),
            "force: ok\nmode: locked: asked for by the program\n"
            "force: already in use\nforce: ok\n");
  EXPECT_EQ(run("", "force=off mode area"),
            "force: ok\nmode: off: asked for by the program\n" + kAreaAtStart);
  EXPECT_EQ(run("WEIR_LISTS=off", "force=rseq mode").rfind("force: ok\nmode: rseq: rseq reg", 0),
            0U);
}

TEST_F(RseqEnvironment, RseqForcedInVainLeavesTheDecisionOpen) {
  EXPECT_EQ(run(kWithoutCLibrary, "refuse-rseq=1 force=rseq force=off mode"),
            "force: system error, Operation not permitted\nforce: ok\n"
            "mode: off: asked for by the program\n");
  EXPECT_EQ(run(kWithoutCLibrary, "foreign force=rseq force=locked mode area"),
            "foreign: 0\nforce: not supported here, Invalid argument\nforce: ok\n"
            "mode: locked: asked for by the program\narea: weir's, stopped\n");
}

TEST_F(RseqEnvironment, UnderValgrindListsAreLockedAndTheProgramRuns) {
  if (test::kSanitized) GTEST_SKIP() << "valgrind and sanitizers do not go together";
  if (output_of("valgrind --version").rfind("valgrind-", 0) != 0) GTEST_SKIP() << "no valgrind";
  const std::string output =
      output_of("valgrind -q --error-exitcode=9 '" + own_path() + "' --steps mode area pages");
  if (output.find("debuginfo reader") != std::string::npos) {
    GTEST_SKIP() << "this valgrind cannot read what this compiler writes for debuggers";
  }
  EXPECT_NE(output.find("mode: locked: "), std::string::npos) << output;
  EXPECT_NE(output.find("area: weir's, stopped\npages: 300\n"), std::string::npos) << output;
  EXPECT_EQ(output.find("status "), std::string::npos) << output;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--steps") {
    return weir::run_steps(argc - 2, argv + 2);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
