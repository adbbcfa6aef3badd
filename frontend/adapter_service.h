#pragma once

// The adapters of this process: an AdapterDirectory with what it calls (the first shard's engine
// client, the other shards, the process's start and end). Main thread, before the shards start;
// then the first shard's. Borrows everything.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/mailbox.h"
#include "common/status.h"
#include "frontend/adapters/adapter_directory.h"
#include "frontend/api/context.h"
#include "frontend/config.h"
#include "frontend/shutdown.h"

namespace tandem {

class Succession;

class AdapterService {
 public:
  using Contexts = std::vector<std::unique_ptr<ApiContext>>;

  // first: the shard that owns the directory. contexts: one per shard, which may come later.
  AdapterService(const FrontendConfig& config, Shard* first, const Contexts* contexts,
                 const Clock* clock, const Succession* succession);

  AdapterDirectory* directory() { return &directory_; }
  // inherited: what the process before has shared, in place of --lora-modules; or empty. While the
  // engines lack what they are to have before the server serves, the engine clients are held. When
  // one cannot have it, the process ends.
  void Begin(const FrontendConfig& config, std::string_view inherited,
             Mailbox<ShutdownEvent>* events);
  // Why the process ends; for main, after the shards have ended.
  const Status& failure() const { return failure_; }

 private:
  AdapterDirectory::Calls MakeCalls(int num_engines, const Succession* succession);
  EngineClient& engines() const { return *contexts_->front()->engine_client; }
  void Publish(const ServedAdaptersPtr& adapters, const wire::LoraRequest* loaded,
               const std::function<void()>& done) const;
  void OnBegun(const Status& status);

  Shard* const first_;
  const Contexts* const contexts_;
  AdapterDirectory directory_;
  Mailbox<ShutdownEvent>* events_ = nullptr;
  Status failure_;
};

}  // namespace tandem
