// The adapters of the engine's requests: what a new request needs, and what becomes of a load.

#include "engine_core/engine_core.h"
#include "proto_msgpack/codec.h"
#include "proto_msgpack/lora_request.h"

namespace tandem {

StatusOr<AdapterCache::Place> EngineCore::FindAdapter(const wire::EngineCoreRequest& request) {
  const wire::RawValue& packed = request.lora_request;
  if (packed.is_nil()) return AdapterCache::Place();
  const StatusOr<wire::LoraRequest> lora = wire::UnpackLoraRequest(packed);
  if (!lora.ok()) return lora.status().WithContext("lora_request");
  RETURN_IF_ERROR(adapters_.Check(*lora));
  return adapters_.Find(*lora);
}

void EngineCore::On(const AdapterLoaded& loaded) {
  AdapterCache::Ended ended = adapters_.End(loaded, scheduler_.adapters());
  for (const AdapterCache::Waiter& request : ended.requests) {
    scheduler_.EndAdapterWait(request.id, request.order, ended.adapter, &outputs_);
  }
  for (const AdapterCache::Call& call : ended.calls) {
    if (ended.adapter.ok()) {
      Reply(call.client_index, call.call_id, wire::PackedBool(true));
    } else {
      Reply(call.client_index, call.call_id, ended.adapter.status());
    }
  }
}

}  // namespace tandem
