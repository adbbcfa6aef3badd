#pragma once

// Whether a request goes on after the death of its engine, and how. Values only; the shard's
// thread.
//
// A death counts against every request that the engine had, because any of them may be the cause.
// Suspects are requests with two deaths or more and no output between the last two, or with one
// restart left: any further death would end innocent requests as well. A suspect is sent alone, on
// probation, until it has come further than in the run before. If that run ends in a death too, the
// request is the cause and is refused. docs/design.md, Resuming.

#include <array>
#include <cstdint>
#include <string_view>

namespace tandem {

struct ResumeLimits {
  int64_t max_restarts = 2;  // deaths of its engine that a request survives; 0: none
  double timeout_s = 60;     // how long a request waits for an engine to go on
  // Bytes of one shard's prompts and outputs that are kept; requests beyond them end with their
  // engine.
  int64_t max_kept_bytes = int64_t{1} << 30;
};

// What became of a request that an engine's death left without an engine.
enum class ResumeOutcome { kResumed, kAborted, kTooManyRestarts, kTimeout, kEndedEngine, kNotKept };
constexpr std::array<std::string_view, 6> kResumeOutcomes = {
    "resumed", "aborted", "too_many_restarts", "timeout", "ended_engine", "not_kept"};

// What one request has been through with its engines.
class EngineDeaths {
 public:
  enum class Verdict { kResume, kResumeAlone, kTooMany, kIsTheCause };

  void OnSent(bool alone) {
    num_outputs_ = 0;
    on_probation_ = alone;
  }
  void OnOutput() { ++num_outputs_; }
  void OnPassed() { on_probation_ = false; }
  // The engine that had the request died.
  Verdict OnDeath(const ResumeLimits& limits);

  int64_t num_deaths() const { return num_deaths_; }
  // It has come further than in the run that the last death ended.
  bool has_passed() const { return num_outputs_ >= num_outputs_to_pass_; }

 private:
  int64_t num_deaths_ = 0;
  int64_t num_outputs_ = 0;  // since it was sent last
  int64_t num_outputs_to_pass_ = 1;
  bool on_probation_ = false;
};

}  // namespace tandem
