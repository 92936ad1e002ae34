// SPDX-License-Identifier: MIT
// apps/weir/demo.cpp — `weir demo`: the main job in about ten seconds. Replays a capture through
// receive, forward and transmit completion on weir's pool and on what people use today; prints the
// table and weir's counters, writes a report page.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/weir/command.hpp"
#include "apps/weir/measure.hpp"
#include "apps/weir/output.hpp"
#include "lab/experiments/experiments.hpp"
#include "lab/harness/html.hpp"
#include "lab/harness/json.hpp"
#include "lab/harness/plan.hpp"
#include "lab/harness/table.hpp"

namespace weir::app {

namespace {

// What a newcomer may be using now, beside weir's pool.
const std::vector<std::string> kDemoContenders = {"weir.pool",  "dpdk.mempool",   "mimalloc",
                                                  "jemalloc",   "tcmalloc",       "glibc",
                                                  "mutex-list", "mutex-list+bulk"};

std::string headline(const lab::CaseResult& result, const lab::ContenderResult& c) {
  const std::string packets = fmt::format("{} forwarded {} packets in {} rounds", c.name,
                                          lab::count_text(c.sum("packets")), result.rounds);
  const lab::ContenderResult* best = lab::best_other(result, c);
  if (best == nullptr) {
    return packets + ".";
  }
  const lab::PairedRatio ratio = lab::ratio(result, c, *best);
  const std::string interval = ratio.interval
                                   ? fmt::format(" (95 % interval {:.2f} to {:.2f})",
                                                 ratio.interval->low, ratio.interval->high)
                                   : "";
  if (ratio.interval && ratio.interval->low <= 1 && ratio.interval->high >= 1) {
    return fmt::format("{}. No winner between it and {}: ratio {:.2f}{}.", packets, best->name,
                       ratio.median, interval);
  }
  return fmt::format("{}, at {:.2f} times the rate of the best other contender, {}{}.", packets,
                     ratio.median, best->name, interval);
}

// Weir's counters over all counted rounds, in sentences.
std::vector<std::string> sentences(const lab::CaseResult& result) {
  std::vector<std::string> lines;
  for (const lab::ContenderResult& c : result.contenders) {
    if (c.side != lab::Side::weir || c.find("packets") == nullptr) {
      continue;
    }
    const double packets = c.sum("packets");
    const double holds = c.sum("zone_lock_acquisitions");
    const double crossing = c.sum("zone_frames_crossing");
    const double bound = c.sum("zone_lock_bound");
    lines.push_back(headline(result, c));
    const double from_ring = c.sum("pool_from_ring");
    const double refilled = from_ring + c.sum("pool_from_allocator");
    if (refilled > 0) {
      lines.push_back(fmt::format(
          "Of the pool's buffers {:.2f} % came back over its return ring, {:.2f} % were taken from "
          "the page allocator; {} found the ring full and went to the page allocator.",
          100 * from_ring / refilled, 100 * (refilled - from_ring) / refilled,
          lab::count_text(c.sum("pool_ring_full"))));
    }
    lines.push_back(fmt::format(
        "Zone lock: taken {} times ({} a million packets) while {} frames crossed the zone "
        "boundary. The promise, 32 frames a hold or at most {} holds, is {}.",
        lab::count_text(holds), lab::number_text(packets > 0 ? 1e6 * holds / packets : 0),
        lab::count_text(crossing), lab::count_text(bound), holds <= bound ? "kept" : "EXCEEDED"));
  }
  return lines;
}

struct DemoCommand {
  Output output;
  double seconds = 10;
  std::string capture_path;
  bool capture_given = false;
  std::size_t rounds = 0;  // 0: not given
  std::vector<std::string> filters;

  int run();
};

int DemoCommand::run() {
  if (capture_given && capture_path.empty()) {
    throw CommandError(kBadUsage,
                       "--capture names no file; leave it out to replay the one that "
                       "comes with weir");
  }
  const LoadedCapture loaded = load_capture(capture_path);
  Session session;
  lab::Experiment experiment = lab::forward_experiment();
  experiment.contenders = kDemoContenders;
  if (!capture_path.empty()) {
    experiment.cases = {{std::filesystem::path(capture_path).stem().string(), capture_path}};
  }
  const lab::Experiment* const experiments[] = {&experiment};
  const std::vector<Selected> selection = select(experiments, session.contenders(), filters);
  output.open();

  const auto total =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
  const lab::Plan plan = lab::plan_for(total, selection.front().present(), rounds);
  const Capture& capture = loaded.capture;
  const auto [shortest, longest] =
      std::minmax_element(capture.frames().begin(), capture.frames().end(),
                          [](Capture::Frame a, Capture::Frame b) { return a.size() < b.size(); });
  output.print(fmt::format(
      "Replaying {}: {} packets of {} to {} bytes, in a loop, through receive -> forward -> "
      "transmit "
      "completion.\n{} {} rounds of {:.2f} s for each of {} contenders, in turn.\n",
      loaded.path, capture.size(), shortest->size(), longest->size(), session.crew_text(),
      plan.rounds, std::chrono::duration<double>(plan.slot).count(), selection.front().present()));
  session.run(selection, {&plan, 1}, &capture, output);

  const lab::CaseResult& result = session.results().front();
  const std::vector<std::string> notes = sentences(result);
  output.print("\n" + table_of(result) + (notes.empty() ? "" : "\n"));
  for (const std::string& line : notes) {
    output.print(line + "\n");
  }
  const lab::MachineCard card = session.card();
  output.write_json(lab::json_text(lab::to_json(card, session.rows())));
  if (output.wants_html()) {
    output.write_html(lab::html_text(
        {"weir demo: packets forwarded between two CPUs", command_line(), date_text(), notes, card},
        session.results()));
    output.print(fmt::format("Report: {}\n", output.html_path()));
  }
  session.require_success();
  return kDone;
}

}  // namespace

void add_demo(CLI::App& app, Action& chosen) {
  auto command = std::make_shared<DemoCommand>();
  CLI::App* sub = app.add_subcommand(
      "demo", "Forward a real capture on weir and on what is used today, side by side");
  sub->add_option("--seconds", command->seconds, "Length of the whole run")
      ->type_name("S")
      ->check(check_seconds)
      ->capture_default_str();
  const CLI::Option* capture =
      sub->add_option("--capture", command->capture_path,
                      "Capture to replay (pcap), instead of the repository's")
          ->type_name("FILE");
  sub->add_option("--rounds", command->rounds, "Rounds to count; at least 7 without this option")
      ->type_name("N")
      ->check(check_rounds);
  sub->add_option("--filter", command->filters,
                  "Only contenders that match this pattern; may be repeated")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command->output.add_json(*sub);
  command->output.add_html(*sub, "weir-report.html");
  sub->callback([command, capture, &chosen] {
    command->capture_given = capture->count() != 0;
    chosen = [command] { return command->run(); };
  });
}

}  // namespace weir::app
