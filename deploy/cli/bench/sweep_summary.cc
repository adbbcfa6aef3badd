#include "deploy/cli/bench/sweep_summary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "deploy/cli/bench/text_table.h"

namespace tandem {
namespace {

struct Column {
  std::string_view field, heading;
  int digits;
};
constexpr Column kColumns[] = {
    {"completed", "ok", 0},
    {"failed", "failed", 0},
    {"request_throughput", "req/s", 2},
    {"output_throughput", "tok/s", 1},
    {"median_ttft_ms", "TTFT", 2},
    {"p99_ttft_ms", "TTFT p99", 2},
    {"median_tpot_ms", "TPOT", 2},
    {"median_itl_ms", "ITL", 2},
    {"p99_itl_ms", "ITL p99", 2},
};

void AddFlags(const ParameterSet& set, std::vector<std::string>* flags) {
  for (const ParameterSet::Setting& setting : set.settings) {
    if (std::find(flags->begin(), flags->end(), setting.flag) == flags->end()) {
      flags->push_back(setting.flag);
    }
  }
}

// Flags that any run sets: the serve command's, then the bench command's.
struct FlagColumns {
  std::vector<std::string> serve, bench;

  explicit FlagColumns(const std::vector<SweepRun>& runs) {
    for (const SweepRun& run : runs) {
      AddFlags(*run.serve, &serve);
      AddFlags(*run.bench, &bench);
    }
  }
  TableRow Heading() const {
    TableRow row = serve;
    row.insert(row.end(), bench.begin(), bench.end());
    return row;
  }
  TableRow Cells(const SweepRun& run) const {
    TableRow row;
    const auto add = [&row](const ParameterSet& set, const std::vector<std::string>& flags) {
      for (const std::string& flag : flags) {
        const ParameterSet::Setting* setting = set.Find(flag);
        row.push_back(setting == nullptr ? "" : setting->text);
      }
    };
    add(*run.serve, serve);
    add(*run.bench, bench);
    return row;
  }
};

// The median over the runs of one pair; empty when no run has the figure.
std::string MedianCell(const std::vector<SweepRun>& runs, const SweepRun& of,
                       const Column& column) {
  std::vector<double> values;
  for (const SweepRun& run : runs) {
    if (run.serve != of.serve || run.bench != of.bench || !run.error.empty()) continue;
    if (const auto value = run.figures.Find(column.field)) values.push_back(*value);
  }
  if (values.empty()) return "";
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return Decimal(median, column.digits);
}

nlohmann::ordered_json SettingsJson(const ParameterSet& set) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const ParameterSet::Setting& setting : set.settings) object[setting.flag] = setting.text;
  return object;
}

bool IsLoad(const std::string& flag) { return flag == "request-rate" || flag == "max-concurrency"; }

// The sets' settings without the load and what is derived from it.
std::string SeriesName(const SweepRun& run) {
  std::string name = run.serve->name;
  for (const ParameterSet::Setting& setting : run.bench->settings) {
    if (IsLoad(setting.flag) || setting.flag == "num-prompts") continue;
    name += (name.empty() ? "" : ", ") + setting.flag + "=" + setting.text;
  }
  return name.empty() ? "server" : name;
}

}  // namespace

std::string SweepJson(const std::vector<SweepRun>& runs) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const SweepRun& run : runs) {
    nlohmann::ordered_json row;
    row["serve"] = SettingsJson(*run.serve);
    row["bench"] = SettingsJson(*run.bench);
    row["label"] = SeriesName(run);
    row["run"] = run.run;
    row["file"] = run.file;
    if (!run.error.empty()) row["error"] = run.error;
    for (const auto& [name, value] : run.figures.numbers) row[name] = value;
    list.push_back(std::move(row));
  }
  return list.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string SweepCsv(const std::vector<SweepRun>& runs) {
  const FlagColumns flags(runs);
  TableRow heading = flags.Heading();
  heading.push_back("run");
  for (const Column& column : kColumns) heading.emplace_back(column.field);
  heading.push_back("error");
  std::vector<TableRow> rows;
  for (const SweepRun& run : runs) {
    TableRow row = flags.Cells(run);
    row.push_back(std::to_string(run.run));
    for (const Column& column : kColumns) {
      const auto value = run.figures.Find(column.field);
      row.push_back(value ? Decimal(*value, 6) : "");
    }
    row.push_back(run.error);
    rows.push_back(std::move(row));
  }
  return CsvTable(heading, rows);
}

std::string SweepTable(const std::vector<SweepRun>& runs) {
  const FlagColumns flags(runs);
  TableRow heading = flags.Heading();
  heading.push_back("runs");
  for (const Column& column : kColumns) heading.emplace_back(column.heading);
  std::vector<TableRow> rows;
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto same_pair = [&](const SweepRun& other) {
      return other.serve == runs[i].serve && other.bench == runs[i].bench;
    };
    const auto here = runs.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::any_of(runs.begin(), here, same_pair)) continue;  // the pair has its row already
    TableRow row = flags.Cells(runs[i]);
    const auto num_good = std::count_if(here, runs.end(), [&](const SweepRun& other) {
      return same_pair(other) && other.error.empty();
    });
    row.push_back(std::to_string(num_good));
    for (const Column& column : kColumns) row.push_back(MedianCell(runs, runs[i], column));
    rows.push_back(std::move(row));
  }
  return AlignedTable(heading, rows);
}

std::vector<LoadRunFigures> SweepPlotRuns(const std::vector<SweepRun>& runs) {
  std::vector<LoadRunFigures> plotted;
  for (const SweepRun& run : runs) {
    if (run.error.empty()) plotted.push_back({SeriesName(run), run.figures});
  }
  return plotted;
}

}  // namespace tandem
