#pragma once

// The saved result of a load run: the JSON object of `tandem bench serve`, or of any bench that
// writes vLLM's fields. Values. Errors: INVALID_ARGUMENT for text that is not such an object.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

struct BenchFigures {
  std::map<std::string, double, std::less<>> numbers;  // all numbers at the top of the object
  std::string label;
  std::string backend;

  std::optional<double> Find(std::string_view name) const;
  double Get(std::string_view name) const { return Find(name).value_or(0); }
};

StatusOr<BenchFigures> ParseBenchFigures(std::string_view json);
StatusOr<BenchFigures> ReadBenchFigures(const std::string& path);
// A file with one object, a list of them, or one per line (--append-result). A sweep's
// summary is a list too; runs that failed are left out.
StatusOr<std::vector<BenchFigures>> ReadAllBenchFigures(const std::string& path);

}  // namespace tandem
