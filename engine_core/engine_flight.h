#pragma once

// The flight recorder of one engine process: its ring, the folder of its files, and what the
// engine sees in place of its clock, executor and grammars while it is recorded.
// Thread: main starts it; after that each part as its own header says.
// Failure: memory. A folder that cannot be written is a warning: the ring is there all the same,
// for `tandem record` and core files.

#include <memory>
#include <string>

#include "common/clock.h"
#include "common/status.h"
#include "engine_core/config.h"
#include "engine_core/flight_recorder.h"
#include "engine_core/recorder/flight_folder.h"
#include "engine_core/recorder/flight_ring.h"

namespace tandem {

class EngineFlight {
 public:
  // setup: complete, with what was chosen by memory. All pointers outlive the result.
  static StatusOr<std::unique_ptr<EngineFlight>> Start(EngineConfig config,
                                                       const EngineSetup& setup,
                                                       const std::string& backend,
                                                       const Clock* clock, Executor* executor,
                                                       RequestGrammars* grammars);
  EngineFlight(const EngineFlight&) = delete;

  FlightRecorder* recorder() { return &recorder_; }
  const Clock* clock() const { return &clock_; }
  Executor* executor() { return &executor_; }
  RequestGrammars* grammars() { return &grammars_; }

  // Any thread. Does nothing without a folder.
  void Write(const std::string& reason);

 private:
  EngineFlight(FlightRing ring, const Clock* clock, Executor* executor, RequestGrammars* grammars);

  FlightRing ring_;
  std::unique_ptr<FlightFolder> folder_;
  FlightRecorder recorder_;
  RecordedClock clock_;
  RecordedExecutor executor_;
  RecordedGrammars grammars_;
};

}  // namespace tandem
