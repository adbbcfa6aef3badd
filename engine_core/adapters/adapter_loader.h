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

class AdapterLoader final : public AdapterLoads {
 public:
  AdapterLoader(const AdapterReader* reader, std::function<void(AdapterLoaded)> done);
  ~AdapterLoader() override;
  void Start(AdapterLoad load) override { loads_.Push(std::move(load)); }

 private:
  void Run();

  const AdapterReader* reader_;
  std::function<void(AdapterLoaded)> done_;
  Mailbox<AdapterLoad> loads_;
  std::thread thread_;
};

}  // namespace tandem
