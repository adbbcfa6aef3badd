#pragma once

// POST /v1/load_lora_adapter and POST /v1/unload_lora_adapter: LoRA adapters while the server runs.
// They exist only with --enable-runtime-lora, because a client that may call them names folders
// of the host. The response comes when every engine has, or has dropped, the adapter; a client that
// goes away changes nothing about it. And adapters that requests name before anybody has loaded
// them. Thread: the exchange's shard, unless noted.

#include <optional>
#include <string>

#include "frontend/api/context.h"
#include "frontend/http/router.h"
#include "frontend/net/net.h"

namespace tandem {

Awaitable<void> HandleLoadAdapter(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleUnloadAdapter(Exchange& exchange, ApiContext* context);

// The folder of an adapter that a request's `model` names, if it is not served. Any thread; waits
// for the disk.
std::optional<std::string> FindAdapterFolder(const ApiContext& context,
                                             const ServedAdapters& adapters,
                                             const std::optional<std::string>& model);
// Has it served: context->adapters has it then. Else why that cannot be.
Awaitable<Status> LoadFromFolder(ApiContext* context, std::string name, std::string folder);

}  // namespace tandem
