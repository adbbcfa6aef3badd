#pragma once

// The thread that reads adapters, one after another, so that the engine loop never waits for a
// disk. Thread: its own; Start and the destructor on the engine loop. `done` is called on the
// thread and must only post. Owns nothing; reader and what it borrows outlive it. Failure: a load's
// is its AdapterLoaded::status.

#include <functional>
#include <thread>

#include "common/mailbox.h"
#include "engine_core/adapters/adapter_link.h"
#include "engine_core/adapters/adapter_reader.h"

namespace tandem {

// The parts of the other ranks: `load` returns when all have read theirs, which must have the
// digest; `drop` when nobody here has the adapter any more, on any thread.
struct OtherRanksAdapters {
  std::function<Status(const AdapterLoad& load, uint64_t digest)> load;
  std::function<void(AdapterId id)> drop;
};

class AdapterLoader final : public AdapterLoads {
 public:
  // others: null functions: there is one rank.
  AdapterLoader(const AdapterReader* reader, std::function<void(AdapterLoaded)> done,
                OtherRanksAdapters others = {});
  ~AdapterLoader() override;
  void Start(AdapterLoad load) override { loads_.Push(std::move(load)); }

 private:
  void Run();
  StatusOr<ReadAdapter> Read(const AdapterLoad& load);

  const AdapterReader* reader_;
  std::function<void(AdapterLoaded)> done_;
  OtherRanksAdapters others_;
  Mailbox<AdapterLoad> loads_;
  std::thread thread_;
};

}  // namespace tandem
