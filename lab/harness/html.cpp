// SPDX-License-Identifier: MIT
// lab/harness/html.cpp — the report page.
#include "lab/harness/html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "lab/harness/table.hpp"

namespace weir::lab {

namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark;
  --page: #fbfaf8; --ink: #1c2430; --soft: #5c6675; --line: #d9dce1; --card: #ffffff;
  --weir: #0b6e99; --other: #9aa5b4; --floor: #cfd4db; --whisker: #39424f; }
@media (prefers-color-scheme: dark) { :root {
  --page: #14181d; --ink: #e6e9ee; --soft: #98a3b3; --line: #2c343e; --card: #1a2027;
  --weir: #3fa7d6; --other: #5d6b7c; --floor: #39434f; --whisker: #c3ccd8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.25rem; margin: 0 0 .25rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .4rem; }
p { margin: .4rem 0; max-width: 46rem; }
code { font: .9em ui-monospace, monospace; }
.soft { color: var(--soft); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 1.25rem 1.4rem; margin-top: 1.5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem;
  font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td.remark { text-align: left; color: var(--soft); white-space: normal; }
tr.weir td:first-child { color: var(--weir); font-weight: 600; }
details { margin: .8rem 0; }
summary { cursor: pointer; color: var(--soft); }
svg { display: block; width: 100%; height: auto; margin: .8rem 0; }
svg text { fill: var(--ink); font: 13px system-ui, sans-serif; }
svg text.soft { fill: var(--soft); }
svg .grid { stroke: var(--line); }
svg .whisker { stroke: var(--whisker); stroke-width: 1.5; }
svg .weir { fill: var(--weir); } svg .other { fill: var(--other); } svg .floor { fill: var(--floor); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.2rem; margin: .5rem 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
)";

constexpr double kChartWidth = 760;
constexpr double kLabelWidth = 250;
constexpr double kValueWidth = 90;
constexpr double kRowHeight = 30;
constexpr double kAxisHeight = 26;
// Times that differ by more are drawn on a logarithmic scale; rates never, for their small bars say
// what they should.
constexpr double kLogFrom = 25;

const char* class_of(Side side) {
  switch (side) {
    case Side::weir:
      return "weir";
    case Side::floor:
      return "floor";
    case Side::other:
      break;
  }
  return "other";
}

// Where a value lies between the left and the right end of the bars.
class Scale {
 public:
  Scale(double least, double most, bool may_be_logarithmic)
      : log_(may_be_logarithmic && least > 0 && most / least > kLogFrom),
        from_(log_ ? std::floor(std::log10(least)) : 0),
        to_(log_ ? std::ceil(std::log10(most)) : nice_end(most)) {}

  [[nodiscard]] bool logarithmic() const { return log_; }
  [[nodiscard]] double x(double value) const {
    const double position = log_ ? std::log10(std::max(value, std::pow(10, from_))) : value;
    return kLabelWidth +
           (position - from_) / (to_ - from_) * (kChartWidth - kLabelWidth - kValueWidth);
  }
  [[nodiscard]] std::vector<double> ticks() const {
    std::vector<double> ticks;
    if (log_) {
      for (double decade = from_; decade <= to_; ++decade) {
        ticks.push_back(std::pow(10, decade));
      }
    } else {
      for (int i = 0; i <= kParts; ++i) {
        ticks.push_back(to_ * i / kParts);
      }
    }
    return ticks;
  }

 private:
  static constexpr int kParts = 4;
  // 1, 2, 4, 6 or 8 times a power of ten, not below the value.
  static double nice_end(double value) {
    const double power = std::pow(10, std::floor(std::log10(value)));
    for (const double step : {1.0, 2.0, 4.0, 6.0, 8.0, 10.0}) {
      if (value <= step * power) {
        return step * power;
      }
    }
    return 10 * power;
  }

  bool log_;
  double from_;
  double to_;
};

struct Bar {
  const ContenderResult* contender;
  Summary shown;  // in the unit of tables
};

std::vector<Bar> bars_of(const CaseResult& result) {
  const Metric& metric = result.experiment->metric;
  std::vector<Bar> bars;
  for (const ContenderResult& contender : result.contenders) {
    if (const Series* series = contender.find(metric.name)) {
      Summary s = summarize(series->values);
      s.median *= metric.shown_per_unit;
      s.low *= metric.shown_per_unit;
      s.high *= metric.shown_per_unit;
      bars.push_back({&contender, s});
    }
  }
  return bars;
}

void add_chart(std::string& out, const CaseResult& result, const std::vector<Bar>& bars) {
  const auto o = std::back_inserter(out);
  const Metric& metric = result.experiment->metric;
  const auto low = [](const Bar& a, const Bar& b) { return a.shown.low < b.shown.low; };
  const auto high = [](const Bar& a, const Bar& b) { return a.shown.high < b.shown.high; };
  const Scale scale(std::min_element(bars.begin(), bars.end(), low)->shown.low,
                    std::max_element(bars.begin(), bars.end(), high)->shown.high,
                    !metric.higher_is_better);
  const double bottom = kRowHeight * static_cast<double>(bars.size()) + 6;
  fmt::format_to(o,
                 "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{} of each "
                 "contender, figures in the table below\">\n",
                 kChartWidth, bottom + kAxisHeight, html_escape(metric.shown_unit));
  for (const double tick : scale.ticks()) {
    fmt::format_to(o,
                   "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"{1:.1f}\"/>"
                   "<text class=\"soft\" x=\"{0:.1f}\" y=\"{2:.1f}\" text-anchor=\"middle\">{3}"
                   "</text>\n",
                   scale.x(tick), bottom, bottom + 18, number_text(tick, 2));
  }
  double y = 4;
  for (const Bar& bar : bars) {
    const double middle = y + kRowHeight / 2 - 2;
    fmt::format_to(
        o,
        "<text x=\"{0:.1f}\" y=\"{1:.1f}\" text-anchor=\"end\">{2}</text>"
        "<rect class=\"{3}\" x=\"{4:.1f}\" y=\"{5:.1f}\" width=\"{6:.1f}\" height=\"{7:.1f}\" "
        "rx=\"2\"/>\n",
        kLabelWidth - 10, middle + 4, html_escape(bar.contender->name),
        class_of(bar.contender->side), kLabelWidth, y + 3,
        std::max(1.0, scale.x(bar.shown.median) - kLabelWidth), kRowHeight - 10);
    fmt::format_to(
        o,
        "<path class=\"whisker\" fill=\"none\" d=\"M{0:.1f} {2:.1f}H{1:.1f}M{0:.1f} {3:.1f}V{4:.1f}"
        "M{1:.1f} {3:.1f}V{4:.1f}\"/><text x=\"{5:.1f}\" y=\"{6:.1f}\">{7}</text>\n",
        scale.x(bar.shown.low), scale.x(bar.shown.high), middle, middle - 5, middle + 5,
        scale.x(bar.shown.high) + 8, middle + 4, number_text(bar.shown.median));
    y += kRowHeight;
  }
  out += "</svg>\n";
  fmt::format_to(o,
                 "<p class=\"soft\">{}; {} is better. Bar: median of {} rounds; whisker: least and "
                 "greatest.{}</p>\n",
                 html_escape(metric.shown_unit), metric.higher_is_better ? "longer" : "shorter",
                 result.rounds, scale.logarithmic() ? " Logarithmic scale." : "");
}

void add_table(std::string& out, const CaseResult& result) {
  const auto o = std::back_inserter(out);
  const Metric& metric = result.experiment->metric;
  fmt::format_to(o,
                 "<div class=\"scroll\"><table><tr><th>contender</th><th>{}</th><th>low</th>"
                 "<th>high</th><th>to best other (95 %)</th><th>which is</th></tr>\n",
                 html_escape(metric.shown_unit));
  for (const ContenderResult& contender : result.contenders) {
    fmt::format_to(o, "<tr class=\"{}\"><td>{}</td>", class_of(contender.side),
                   html_escape(contender.name));
    const Series* series = contender.find(metric.name);
    if (series == nullptr) {
      fmt::format_to(o, "<td class=\"remark\" colspan=\"5\">{}</td></tr>\n",
                     html_escape(contender.absent.empty() ? "no figures" : contender.absent));
      continue;
    }
    const Summary s = summarize(series->values);
    for (const double value : {s.median, s.low, s.high}) {
      fmt::format_to(o, "<td>{}</td>", number_text(value * metric.shown_per_unit));
    }
    const ContenderResult* best = best_other(result, contender);
    if (best != nullptr && contender.side != Side::floor) {
      fmt::format_to(o, "<td>{}</td><td>{}</td>",
                     html_escape(ratio_text(ratio(result, contender, *best))),
                     html_escape(best->name));
    } else {
      out += "<td></td><td></td>";
    }
    out += "</tr>\n";
  }
  out += "</table></div>\n";
}

// Every series of weir's contenders but the main one.
void add_counters(std::string& out, const CaseResult& result) {
  const auto o = std::back_inserter(out);
  std::string lines;
  for (const ContenderResult& contender : result.contenders) {
    if (contender.side != Side::weir) {
      continue;
    }
    for (const Series& series : contender.series) {
      if (series.values.empty() || series.metric == result.experiment->metric.name) {
        continue;
      }
      const Summary s = summarize(series.values);
      fmt::format_to(std::back_inserter(lines),
                     "<tr><td>{}</td><td class=\"remark\">{}</td><td>{}</td><td>{}</td><td>{}</td>"
                     "<td>{}</td></tr>\n",
                     html_escape(contender.name), html_escape(series.metric),
                     number_text(s.median, 6), number_text(s.low, 6), number_text(s.high, 6),
                     html_escape(series.unit));
    }
  }
  if (!lines.empty()) {
    fmt::format_to(o,
                   "<details><summary>What weir counted, per round</summary><div class=\"scroll\">"
                   "<table><tr><th>contender</th><th>counter</th><th>median</th><th>low</th>"
                   "<th>high</th><th>unit</th></tr>\n{}</table></div></details>\n",
                   lines);
  }
}

void add_case(std::string& out, const CaseResult& result) {
  const auto o = std::back_inserter(out);
  const Experiment& experiment = *result.experiment;
  fmt::format_to(o, "<section><h2>{}: {}</h2><p>{}</p>\n", html_escape(experiment.name),
                 html_escape(result.case_name), html_escape(experiment.question));
  if (const std::vector<Bar> bars = bars_of(result); !bars.empty()) {
    add_chart(out, result, bars);
  }
  add_table(out, result);
  add_counters(out, result);
  fmt::format_to(o, "<p class=\"soft\">{}</p>\n", html_escape(experiment.meaning));
  if (result.noisy()) {
    out +=
        "<p><strong>This run was noisy</strong>: a loop of pure arithmetic beside it varied by "
        "more than 15 %.</p>\n";
  }
  if (result.rounds < result.planned) {
    fmt::format_to(o, "<p><strong>Cut short</strong>: {} of {} rounds.</p>\n", result.rounds,
                   result.planned);
  }
  out += "</section>\n";
}

void add_machine(std::string& out, const MachineCard& machine) {
  const auto o = std::back_inserter(out);
  const auto item = [&](std::string_view name, std::string_view value) {
    fmt::format_to(o, "<dt>{}</dt><dd>{}</dd>\n", html_escape(name), html_escape(value));
  };
  out += "<section><h2>The machine</h2><dl>\n";
  item("cpu", machine.cpu);
  item("cpus", std::to_string(machine.cpus));
  item("kernel", machine.kernel);
  item("compiler", machine.compiler);
  item("build", machine.build);
  item("commit", machine.commit);
  for (const auto& [name, value] : machine.modes) {
    item(name, value);
  }
  out += "</dl></section>\n";
}

constexpr std::string_view kMeaning =
    R"(<section><h2>What the numbers mean, and what they do not</h2>
<p>Contenders ran in turn within every round, and each round began with the next one. What disturbed
the machine therefore disturbed them alike, and the <em>ratio</em> of two contenders, taken round by
round, is the figure to rely on. Its 95 % interval comes from the order of the rounds alone and
assumes no distribution.</p>
<p>The absolute figures belong to this machine at this hour. They do not say what a network card
adds, nor what an application does with its packets; every contender was verified to hand out
memory that nobody else held.</p></section>
)";

}  // namespace

std::string html_escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string html_text(const HtmlReport& report, std::span<const CaseResult> results) {
  std::string out;
  fmt::format_to(std::back_inserter(out),
                 "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                 "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                 "<title>{0}</title><style>{1}</style></head>\n<body><main>\n<h1>{0}</h1>\n"
                 "<p class=\"soft\"><code>{2}</code>, {3}</p>\n",
                 html_escape(report.title), kStyle, html_escape(report.command),
                 html_escape(report.date));
  for (const std::string& note : report.notes) {
    fmt::format_to(std::back_inserter(out), "<p>{}</p>\n", html_escape(note));
  }
  for (const CaseResult& result : results) {
    add_case(out, result);
  }
  out += kMeaning;
  add_machine(out, report.machine);
  out += "</main></body></html>\n";
  return out;
}

}  // namespace weir::lab
