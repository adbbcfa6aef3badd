#pragma once

// Searches the load (streams at once, or requests per second) at which a server gives the most
// tokens within its limits: doubles the load until a limit breaks or throughput stops growing, then
// halves the gap. Pure: the caller measures. Assumes that every load above one that breaks a limit
// breaks it too.
//   while (const auto load = search.Next()) search.Record(Measure(*load));

#include <optional>
#include <vector>

namespace tandem {

class LoadSearch {
 public:
  struct Rules {
    double min = 1, max = 256;
    bool whole = true;       // loads are whole numbers
    double tolerance = 0.1;  // the search ends when the gap is this share of the load that holds
    double gain = 0.03;      // doubling stops when throughput grows by less than this share
  };
  struct Trial {
    double load = 0;
    bool within_limits = false;
    double throughput = 0;
  };

  explicit LoadSearch(const Rules& rules) : rules_(rules) {}

  std::optional<double> Next() const;  // nullopt: the search is over
  void Record(const Trial& trial) { trials_.push_back(trial); }

  // The trial within limits of highest throughput; of equal ones the lower load. nullptr: none.
  const Trial* best() const;

 private:
  const Rules rules_;
  std::vector<Trial> trials_;
};

}  // namespace tandem
