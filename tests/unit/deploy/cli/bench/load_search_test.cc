#include "deploy/cli/bench/load_search.h"

#include <algorithm>
#include <functional>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// Searches a server whose limits hold up to `holds` and whose throughput is a function of load.
struct Found {
  std::vector<double> loads;
  std::optional<double> best;
};
Found Search(const LoadSearch::Rules& rules, double holds,
             const std::function<double(double)>& throughput) {
  LoadSearch search(rules);
  Found found;
  while (const auto load = search.Next()) {
    REQUIRE(found.loads.size() < 100);
    found.loads.push_back(*load);
    search.Record({*load, *load <= holds, throughput(*load)});
  }
  if (search.best() != nullptr) found.best = search.best()->load;
  return found;
}

double Linear(double load) { return 100 * load; }

TEST_CASE("The search doubles, then halves the gap") {
  const Found found = Search({.min = 1, .max = 256, .tolerance = 0}, 21, Linear);
  CHECK(found.loads == std::vector<double>{1, 2, 4, 8, 16, 32, 24, 20, 22, 21});
  CHECK(found.best == 21);
}

TEST_CASE("Every whole limit is found exactly without tolerance") {
  for (int holds = 1; holds <= 256; ++holds) {
    CAPTURE(holds);
    const Found found = Search({.min = 1, .max = 256, .tolerance = 0}, holds, Linear);
    CHECK(found.best == holds);
    CHECK(found.loads.size() <= 17);
    std::vector<double> sorted = found.loads;
    std::sort(sorted.begin(), sorted.end());
    CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());  // no load twice
  }
}

TEST_CASE("A tolerance ends the search early, rates are halved in ratio") {
  const Found whole = Search({.min = 1, .max = 256, .tolerance = 0.1}, 200, Linear);
  CHECK(*whole.best >= 200 / 1.1 - 1);
  CHECK(whole.loads.size() <= 13);
  const Found rate =
      Search({.min = 0.5, .max = 100, .whole = false, .tolerance = 0.05}, 7.3, Linear);
  CHECK(*rate.best <= 7.3);
  CHECK(*rate.best >= 7.3 / 1.05);
}

TEST_CASE("Load that adds no throughput is not doubled") {
  const auto saturated = [](double load) { return std::min(load, 8.0); };
  const Found found = Search({.min = 1, .max = 256}, 1000, saturated);
  CHECK(found.loads == std::vector<double>{1, 2, 4, 8, 16});
  CHECK(found.best == 8);
}

TEST_CASE("The bounds are tried and kept") {
  CHECK(Search({.min = 3, .max = 10}, 1000, Linear).loads == std::vector<double>{3, 6, 10});
  CHECK(Search({.min = 4, .max = 4}, 1000, Linear).best == 4);
  const Found none = Search({.min = 2, .max = 64}, 1, Linear);
  CHECK(none.loads == std::vector<double>{2});
  CHECK_FALSE(none.best.has_value());
}

}  // namespace
}  // namespace tandem
