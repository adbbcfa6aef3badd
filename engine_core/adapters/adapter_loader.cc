#include "engine_core/adapters/adapter_loader.h"

#include <chrono>
#include <utility>
#include <vector>

#include "common/log.h"

namespace tandem {

AdapterLoader::AdapterLoader(const AdapterReader* reader, std::function<void(AdapterLoaded)> done)
    : reader_(reader), done_(std::move(done)), thread_([this] { Run(); }) {}

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
      StatusOr<ReadAdapter> adapter = reader_->Read(load.name, load.folder);
      if (adapter.ok()) {
        LOG_INFO << "[lora] " << load.name << " read from " << load.folder << ", "
                 << (adapter->weights->num_bytes() >> 10) << " KiB";
        done_({load.id, OkStatus(), adapter->digest, std::move(adapter->weights)});
      } else {
        LOG_WARNING << "[lora] " << load.name << " cannot be used: " << adapter.status().message();
        done_({load.id, adapter.status()});
      }
    }
  }
}

}  // namespace tandem
