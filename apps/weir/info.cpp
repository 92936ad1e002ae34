// SPDX-License-Identifier: MIT
// apps/weir/info.cpp — `weir info`: what this machine gives, and what an allocator built here would
// really get, each with its reason. Calls os/system_info, page.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "apps/weir/command.hpp"
#include "apps/weir/output.hpp"
#include "lab/harness/build_info.hpp"
#include "lab/harness/json.hpp"
#include "lab/harness/machine.hpp"
#include "weir/os/system_info.hpp"
#include "weir/page/page_allocator.hpp"
#include "weir/stats/metadata.hpp"

namespace weir::app {

namespace {

// One line of the answer: a number or a word, and why it is so.
struct Fact {
  const char* topic;
  std::string name;
  std::string value;
  std::string why;
};

struct Info {
  std::vector<Fact> facts;
  std::vector<lab::Row> rows;  // the numbers among them
};

std::string size_text(Bytes size) {
  constexpr std::uint64_t kStep = 1024;
  const char* const suffixes[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::uint64_t value = size.value;
  unsigned step = 0;
  while (step < 4 && value >= kStep && value % kStep == 0) {
    value /= kStep;
    ++step;
  }
  return fmt::format("{} {}", value, suffixes[step]);
}

std::string limit_text(const std::optional<Bytes>& limit) {
  return limit ? size_text(*limit) : "unlimited";
}

class Teller {
 public:
  explicit Teller(Info& info) : info_(info) {}

  void topic(const char* topic, const char* contender) {
    topic_ = topic;
    contender_ = contender;
  }
  void text(const std::string& name, const std::string& value, const std::string& why = "") {
    info_.facts.push_back({topic_, name, value, why});
  }
  void have(const std::string& name, const Capability& capability) {
    text(name, capability.available ? "yes" : "no", capability.why);
  }
  void number(const std::string& name, const char* metric, std::uint64_t value, const char* unit,
              const std::string& shown = "", const std::string& why = "") {
    text(name, shown.empty() ? std::to_string(value) : shown, why);
    const auto v = static_cast<double>(value);
    info_.rows.push_back({"info", topic_, contender_, metric, unit, v, v, v, 1});
  }

 private:
  Info& info_;
  const char* topic_ = "";
  const char* contender_ = "";
};

void tell_system(Teller& tell, const SystemInfo& system) {
  tell.topic("machine", "kernel");
  tell.text("processor", system.cpu_model, system.architecture);
  tell.number("CPUs", "cpus", system.cpus_allowed, "count", "",
              fmt::format("that this process may use; numbers go up to {}", system.cpu_limit - 1));
  tell.number("NUMA nodes", "numa_nodes", system.numa_nodes, "count");
  tell.text("kernel", system.kernel_release);
  tell.topic("memory", "kernel");
  tell.text("transparent huge pages", system.thp_mode.empty() ? "none" : system.thp_mode,
            system.transparent_huge.why);
  if (!system.thp_shmem_mode.empty()) {
    tell.text("the same for memfd", system.thp_shmem_mode);
  }
  tell.have("explicit huge pages", system.explicit_huge);
  for (const HugePagePool& pool : system.huge_pools) {
    tell.text(fmt::format("huge pages of {}", size_text(pool.page_size)),
              std::to_string(pool.total), fmt::format("{} free", pool.free));
  }
  tell.have("memfd", system.memfd);
  tell.text("locked memory, at most", limit_text(system.memlock_limit));
  tell.text("address space, at most", limit_text(system.address_space_limit));
  tell.topic("kernel services", "kernel");
  tell.have("restartable sequences", system.rseq);
  tell.text("their area", fmt::format("{} bytes", system.rseq_size),
            fmt::format("the kernel fills {}", system.rseq_feature_size));
  tell.have("membarrier for them", system.membarrier_rseq);
  tell.have("AF_XDP", system.af_xdp);
  tell.have("io_uring", system.io_uring);
}

std::string option_value(Bytes value) { return size_text(value); }
std::string option_value(PageCount value) { return std::to_string(value.value); }
std::string option_value(std::chrono::milliseconds value) {
  return fmt::format("{} ms", value.count());
}
std::string option_value(bool value) { return value ? "on" : "off"; }
template <class Choice>
std::string option_value(Choice value) {
  return choice_name(value);
}

std::string limit_or_none(std::uint64_t frames) {
  return frames == 0 ? "none" : std::to_string(frames);
}

// What stands beside the frames, each part with its share of them.
void tell_metadata(Teller& tell, const Metadata& metadata, PageCount managed) {
  const auto part = [&](const std::string& name, const char* metric, Bytes size,
                        const std::string& why) {
    const double share =
        100.0 * static_cast<double>(size.value) / static_cast<double>(bytes(managed).value);
    tell.number(name, metric, size.value, "bytes", fmt::format("{} ({:.3f} %)", size.value, share),
                why);
  };
  tell.topic("metadata", "weir.page");
  part("metadata: descriptors", "metadata_descriptors", metadata.descriptors,
       fmt::format("{} bytes a frame of {}", sizeof(Page), kFrameBytes));
  part("metadata: engine", "metadata_engine", metadata.engine,
       "a bit a frame, counts and an index");
  part("metadata: depot", "metadata_depot", metadata.depot, "256 bytes a cluster, and links");
  part("metadata: lists", "metadata_lists", metadata.lists, "4 KiB for each CPU that came by");
  part("metadata: maps", "metadata_maps", metadata.maps, "from addresses to frames");
  part("metadata: zone", "metadata_zone", metadata.zone, "its state and counters");
  part("metadata: all", "metadata", metadata.total(), "");
}

void tell_allocator(Teller& tell, const Effective& effective, const ZoneState& state) {
  tell.topic("allocator", "weir.page");
  tell.text("per-CPU lists", effective.list_mode, effective.list_mode_reason);
  tell.text("memory from", source_name(effective.extent.source),
            *effective.extent.note != '\0' ? effective.extent.note : "as asked");
  tell.text("its pages", size_text(effective.extent.page_size),
            effective.extent.transparent_huge ? "the kernel may join them into huge pages" : "");
  tell.number("frames managed", "managed", effective.managed.value, "frames", "",
              size_text(bytes(effective.managed)));
  tell.number("lists", "lists", effective.lists, "count", "", "one for each CPU there may be");
  tell.number("their memory", "list_memory", effective.list_memory.value, "bytes", "",
              size_text(effective.list_memory) + " of address space; 4 KiB for each CPU in use");
  tell.number("cluster", "cluster", effective.cluster, "frames", "",
              "moved at once between list, depot and engine");
  tell.number("batch", "batch", effective.batch, "frames", "", "by the kernel's formula");
  tell.number("a list holds", "high", effective.high, "frames", "", "of order 0, to start with");
  tell.number("a busy list", "high_max", effective.high_max, "frames", "",
              "when misses earn it more");
  tell.number("the depot holds", "depot", effective.depot, "frames", "",
              "in whole clusters, unmerged");
  tell.number("all of them", "cached_max", effective.cached_max, "frames", "", "at most");
  tell.number("watermark min", "watermark_min", effective.watermark_min, "frames");
  tell.number("watermark low", "watermark_low", effective.watermark_low, "frames");
  tell.number("watermark high", "watermark_high", effective.watermark_high, "frames");
  tell.number("free", "free", state.free, "frames", "", mark_name(state.below));
  tell.number("used", "used", state.used, "frames", "", "what rests on per-CPU lists included");
  tell.text("limit", limit_or_none(state.limit), "most frames in use at once");
  tell.text("soft limit", limit_or_none(state.soft_limit), "above it limit watches are told");
  tell.topic("options in effect", "weir.page");
#define WEIR_OPTION(type, name, initial, least, most, help) \
  tell.text(#name, option_value(effective.options.name), help);
#include "weir/os/options.def"
#undef WEIR_OPTION
}

std::string text_of(const Info& info) {
  std::size_t name_width = 0;
  std::size_t value_width = 0;
  for (const Fact& fact : info.facts) {
    name_width = std::max(name_width, fact.name.size());
    value_width = std::max(value_width, fact.why.empty() ? 0 : fact.value.size());
  }
  std::string text;
  const char* topic = nullptr;
  for (const Fact& fact : info.facts) {
    if (topic != fact.topic) {
      text += fmt::format("{}{}\n", topic == nullptr ? "" : "\n", fact.topic);
      topic = fact.topic;
    }
    text += fact.why.empty() ? fmt::format("  {:{}}  {}\n", fact.name, name_width, fact.value)
                             : fmt::format("  {:{}}  {:{}}  {}\n", fact.name, name_width,
                                           fact.value, value_width, fact.why);
  }
  return text;
}

nlohmann::ordered_json json_of(const Info& info, const lab::MachineCard& card) {
  nlohmann::ordered_json document = lab::to_json(card, info.rows);
  nlohmann::ordered_json facts = nlohmann::ordered_json::array();
  for (const Fact& fact : info.facts) {
    facts.push_back(
        {{"topic", fact.topic}, {"name", fact.name}, {"value", fact.value}, {"why", fact.why}});
  }
  document["facts"] = std::move(facts);
  return document;
}

struct InfoCommand {
  Output output;
  std::string options_text;

  int run() {
    Options options = with_environment({});
    const OptionProblem problem = parse_options(options_text, options);
    if (problem.code != Errc::ok) {
      throw CommandError(kBadUsage, fmt::format("--options: {}", problem.line.data()));
    }
    output.open();
    const SystemInfo system = system_info();
    Info info;
    Teller tell(info);
    tell_system(tell, system);
    lab::MachineCard card = lab::machine_card(system);
    try {
      PageAllocator pages(options);
      pages.alloc().reset();  // so that the list of this CPU is there
      tell_allocator(tell, pages.effective(), pages.zone_state());
      tell_metadata(tell, metadata_of(pages), pages.effective().managed);
      card.modes.emplace_back("lists", pages.effective().list_mode);
    } catch (const std::invalid_argument& error) {
      throw CommandError(kBadUsage, error.what());
    } catch (const std::system_error& error) {
      throw CommandError(kFailed, error.what());
    }
    output.print(text_of(info));
    output.write_json(lab::json_text(json_of(info, card)));
    return kDone;
  }
};

}  // namespace

void add_info(CLI::App& app, Action& chosen) {
  auto command = std::make_shared<InfoCommand>();
  CLI::App* sub = app.add_subcommand(
      "info", "What this machine gives, and the effective modes of an allocator, with reasons");
  sub->add_option("--options", command->options_text,
                  "Options of the allocator to try, over those of WEIR_OPTIONS")
      ->type_name("NAME=VALUE,...");
  command->output.add_json(*sub);
  sub->callback([command, &chosen] { chosen = [command] { return command->run(); }; });
}

}  // namespace weir::app
