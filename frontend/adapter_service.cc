#include "frontend/adapter_service.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/log.h"
#include "frontend/succession.h"

namespace tandem {

AdapterService::AdapterService(const FrontendConfig& config, Shard* first, const Contexts* contexts,
                               const Clock* clock, const Succession* succession)
    : first_(first),
      contexts_(contexts),
      directory_(config.api.served_model_names, first, clock,
                 MakeCalls(static_cast<int>(config.data_parallel_size), succession),
                 AdapterFolders(config.lora_resolver_cache_dir)) {}

AdapterDirectory::Calls AdapterService::MakeCalls(int num_engines, const Succession* succession) {
  AdapterDirectory::Calls calls;
  calls.num_engines = num_engines;
  calls.check_engine = [this](int engine) { return engines().engine_status(engine); };
  calls.num_slots = [this](int engine) {
    const wire::EngineCoreReadyResponse& info = engines().engine_info(engine);
    return info.supports_lora ? std::max(1, info.max_loras) : 0;
  };
  calls.is_ours = [this](int engine) {
    return engines().engine_info(engine).peer() == wire::Peer::kTandem;
  };
  calls.call_engine = [this](int engine, std::string_view method, wire::RawValue args,
                             UtilityCalls::Callback callback) {
    engines().CallUtility(engine, method, std::move(args), std::move(callback));
  };
  calls.publish = [this](const ServedAdaptersPtr& adapters, const wire::LoraRequest* loaded,
                         const std::function<void()>& done) { Publish(adapters, loaded, done); };
  calls.on_begun = [this](const Status& status) { OnBegun(status); };
  calls.is_handing_over = [succession] { return succession->is_handing_over(); };
  return calls;
}

void AdapterService::Begin(const FrontendConfig& config, std::string_view inherited,
                           Mailbox<ShutdownEvent>* events) {
  events_ = events;
  Status status = directory_.Begin(config.lora_modules, inherited);
  if (!status.ok() && !inherited.empty()) {
    LOG_ERROR << "[reload] " << status.message() << ": those of --lora-modules are served alone";
    status = directory_.Begin(config.lora_modules, "");
  }
  for (const auto& context : *contexts_) {
    context->adapters = directory_.served();
    context->engine_client->SetAdapterFiles([context = context.get()](const auto& lora) {
      return AdapterDirectory::HasOtherFiles(*context->adapters, lora);
    });
    if (status.ok() && directory_.has_begun()) continue;
    context->engine_client->Hold(UnavailableError("the server is loading its adapters"));
  }
  if (!status.ok()) return OnBegun(status);
  engines().OnEngineReady([this](int engine) { directory_.OnEngineReady(engine); });
}

void AdapterService::Publish(const ServedAdaptersPtr& adapters, const wire::LoraRequest* loaded,
                             const std::function<void()>& done) const {
  const auto num_left = std::make_shared<size_t>(contexts_->size());
  const std::optional<wire::LoraRequest> replaced =
      loaded == nullptr ? std::nullopt : std::optional(*loaded);
  for (const auto& each : *contexts_) {
    each->engine_client->RunOnShard(
        [this, adapters, replaced, num_left, done, context = each.get()] {
          if (replaced) context->engine_client->OnAdapterLoaded(replaced->name, replaced->path);
          context->adapters = adapters;
          first_->Post([num_left, done] {
            if (--*num_left == 0) done();
          });
        });
  }
}

void AdapterService::OnBegun(const Status& status) {
  if (!status.ok()) {
    failure_ = status;
    events_->Push(ShutdownEvent::kSignal);
    return;
  }
  for (const auto& each : *contexts_) {
    each->engine_client->RunOnShard([client = each->engine_client] { client->Release(); });
  }
}

}  // namespace tandem
