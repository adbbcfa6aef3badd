#pragma once

// Looks for the load (streams at once, or requests per second) at which a server gives most tokens
// while it keeps its limits: doubles until a limit breaks or more load brings nothing, then halves
// the gap. Pure: the caller measures. Assumes that a load beyond one that breaks a limit breaks it.
//   while (const auto load = search.Next()) search.Record(Measure(*load));

#include <optional>
#include <vector>

namespace tandem {

class LoadSearch {
 public:
  struct Rules {
    double min = 1, max = 256;
    bool whole = true;       // loads are whole numbers
    double tolerance = 0.1;  // end when the gap is this part of the load that holds
    double gain = 0.03;      // a doubling that brings less throughput ends the search
  };
  struct Trial {
    double load = 0;
    bool within_limits = false;
    double throughput = 0;
  };

  explicit LoadSearch(const Rules& rules) : rules_(rules) {}

  std::optional<double> Next() const;  // nullopt: nothing left to learn
  void Record(const Trial& trial) { trials_.push_back(trial); }

  // The trial within limits of highest throughput; of equal ones the lower load. nullptr: none.
  const Trial* best() const;

 private:
  const Rules rules_;
  std::vector<Trial> trials_;
};

}  // namespace tandem
