#include "engine_core/adapters/adapter_loader.h"

#include <chrono>
#include <utility>
#include <vector>

#include "common/log.h"

namespace tandem {

AdapterLoader::AdapterLoader(const AdapterReader* reader, std::function<void(AdapterLoaded)> done,
                             OtherRanksAdapters others)
    : reader_(reader),
      done_(std::move(done)),
      others_(std::move(others)),
      thread_([this] { Run(); }) {}

AdapterLoader::~AdapterLoader() {
  loads_.Close();
  thread_.join();
}

void AdapterLoader::Run() {
  SetThreadName("adapters");
  std::vector<AdapterLoad> loads;
  while (!loads_.closed()) {
    loads_.Wait();
    loads_.Drain(&loads);
    for (const AdapterLoad& load : loads) {
      if (loads_.closed()) return;
      StatusOr<ReadAdapter> adapter = Read(load);
      if (adapter.ok()) {
        LOG_INFO << "[lora] " << load.name << " read from " << load.folder << ", "
                 << (adapter->weights->num_bytes() >> 10) << " KiB";
        if (!adapter->warning.empty()) {
          LOG_WARNING << "[lora] " << load.name << ": " << adapter->warning;
        }
        done_({load.id, OkStatus(), adapter->digest, std::move(adapter->weights)});
      } else {
        LOG_WARNING << "[lora] " << load.name << " cannot be used: " << adapter.status().message();
        done_({load.id, adapter.status()});
      }
    }
  }
}

StatusOr<ReadAdapter> AdapterLoader::Read(const AdapterLoad& load) {
  ASSIGN_OR_RETURN(ReadAdapter adapter, reader_->Read(load.name, load.folder, load.id));
  if (!others_.load) return adapter;
  const Status loaded = others_.load(load, adapter.digest);
  // They keep their parts as long as requests have this one.
  const AdapterWeights* weights = adapter.weights.get();
  adapter.weights =
      SharedAdapter(weights, [own = std::move(adapter.weights), id = load.id,
                              drop = others_.drop](const AdapterWeights*) { drop(id); });
  RETURN_IF_ERROR(loaded);
  return adapter;
}

}  // namespace tandem
