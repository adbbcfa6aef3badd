#pragma once

// Where a replay has come to in the records of a flight. What the engine asks for is taken in the
// recorded order; when it asks for something else, the replay has left the recorded run, and that
// is kept with its place. After the last record nothing more is taken: the recorded process ended
// there, and the replay goes on to see how.
// Thread: engine loop.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/log.h"
#include "engine_core/flight_records.h"
#include "engine_core/recorder/flight_file.h"

namespace tandem {

class ReplayCursor {
 public:
  // `begin`: the first record to take. The file outlives the cursor.
  ReplayCursor(const FlightFile* file, size_t begin) : records_(file->records), next_(begin) {
    for (size_t i = begin; i < records_.size(); ++i) {
      if (KindOf(records_[i]) != RecordKind::kCollected) continue;
      results_[ByteReader(records_[i].payload).Signed()] = records_[i].payload;
    }
  }

  bool at_end() const { return next_ == records_.size(); }
  // nullopt: at the end.
  std::optional<RecordKind> next_kind() const {
    if (at_end()) return std::nullopt;
    return KindOf(records_[next_]);
  }
  // The next record's payload, if it is of this kind. nullopt: the end, or a difference.
  std::optional<std::string_view> Take(RecordKind kind) {
    if (at_end()) return std::nullopt;
    if (KindOf(records_[next_]) != kind) {
      Differ("the engine goes on with a " + std::string(RecordKindName(kind)) + ", recorded is a " +
             std::string(RecordKindName(KindOf(records_[next_]))));
      return std::nullopt;
    }
    return records_[next_++].payload;
  }
  // The recorded result of a step, which may come later; nullopt: there is none.
  std::optional<std::string_view> ResultOf(int64_t number) const {
    const auto entry = results_.find(number);
    if (entry == results_.end()) return std::nullopt;
    return entry->second;
  }

  // Only the first difference counts: what follows is its consequence.
  void Differ(const std::string& what) {
    if (difference_) return;
    difference_ = what;
    // At once: what follows may end the process.
    LOG_ERROR << "[replay] DIFFERS in step " << step << ": " << what;
  }
  const std::optional<std::string>& difference() const { return difference_; }

  int64_t step = 0;  // the last one submitted

 private:
  static RecordKind KindOf(const FlightRecord& record) {
    return static_cast<RecordKind>(record.kind);
  }

  const std::vector<FlightRecord>& records_;
  size_t next_;
  std::unordered_map<int64_t, std::string_view> results_;
  std::optional<std::string> difference_;
};

}  // namespace tandem
