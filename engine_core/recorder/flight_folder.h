#pragma once

// Where recordings are written, and the signals at which they are. Files have mode 0600 and names
// tandem-TIME-PID-N.flight; Open deletes the oldest, so that kMaxFiles of them are left together
// with one that a crash will write.
// Threads: Open and CatchFatalSignals on main; Write on any; WriteLast also in a signal handler: it
// makes system calls and touches memory that was there before.

#include <atomic>
#include <memory>
#include <string>

#include "common/status.h"
#include "engine_core/recorder/flight_ring.h"

namespace tandem {

class FlightFolder {
 public:
  static constexpr int kMaxFiles = 8;

  // wish: --flight-recorder-dir; empty: $STATE_DIRECTORY, else tandem in $XDG_STATE_HOME, else
  // ~/.local/state/tandem, else /tmp/tandem-UID.
  static std::string Choose(const std::string& wish);

  // Makes the folder, with mode 0700, if it is not there. The ring outlives the result.
  static StatusOr<std::unique_ptr<FlightFolder>> Open(const std::string& path, double unix_time,
                                                      FlightRing* ring);
  FlightFolder(const FlightFolder&) = delete;
  ~FlightFolder();

  // From here on fatal signals (also abort() after a failed CHECK) write a recording before they
  // end the process as they always do. One folder of a process at a time.
  void CatchFatalSignals();
  // The file's path. The ring goes on recording.
  StatusOr<std::string> Write(const std::string& reason);
  // For the end of a process: nothing is recorded after it. Says on stderr where the file is. Only
  // the first call does anything.
  void WriteLast(const char* reason);

 private:
  FlightFolder(std::string folder, const std::string& stem, FlightRing* ring);
  int OpenNext(char* path);  // a descriptor, or -1 and errno
  void DeleteOld(int num_kept) const;

  static constexpr size_t kMaxPathBytes = 4096;

  const std::string folder_;
  const std::string stem_;  // of this process's files: FOLDER/tandem-TIME-PID-
  FlightRing* const ring_;
  std::atomic<int> num_files_{0};
  std::atomic<bool> is_over_{false};
};

// WriteLast of the folder that catches fatal signals, if there is one.
void WriteLastFlight(const char* reason);

}  // namespace tandem
