#pragma once

// Looks up, loads and stores prefixes of a PrefixFolder on two threads: one stores, the other one
// does what requests wait for. Thread: engine loop. The folder must outlive it. Jobs of a thread
// end in the order of Push; those that have not begun when this goes are dropped.

#include <cstddef>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/job_thread.h"
#include "common/mailbox.h"
#include "common/status.h"
#include "engine_core/kv_transfer/prefix_folder.h"

namespace tandem {

struct FolderJob {
  enum class Kind { kLookUp, kLoad, kStore };
  Kind kind = Kind::kLookUp;
  RequestId id;
  std::string key;
  std::vector<BlockId> blocks = {};  // of the whole prefix
  size_t first_block = 0;            // of a load: those before it are there
  bool replaces = false;             // of a store
  Status status = {};                // of a load or store that is done
  bool found = false;                // of a look-up or load that is done: something is there
};

class FolderWorker {
 public:
  explicit FolderWorker(const PrefixFolder* folder);
  ~FolderWorker();

  void Push(FolderJob job);
  // Jobs that have been done since the last call.
  std::vector<FolderJob>& TakeDone();
  bool is_busy() const { return num_pushed_ > 0; }
  // While it is: sleeps until a job is done, or for at most 1 ms.
  void WaitBriefly();

 private:
  void Run(FolderJob job);
  void Do(FolderJob* job) const;

  const PrefixFolder* folder_;
  Mailbox<FolderJob> done_;
  std::vector<FolderJob> taken_;
  size_t num_pushed_ = 0;  // and not taken
  JobThread<FolderJob> reader_, writer_;
};

}  // namespace tandem
