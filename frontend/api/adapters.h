#pragma once

// POST /v1/load_lora_adapter and POST /v1/unload_lora_adapter: LoRA adapters while the server runs.
// They exist only with --enable-runtime-lora, because a client that may call them names folders
// of the host. The response comes when every engine has, or has dropped, the adapter; a client that
// goes away changes nothing about it. Thread: the exchange's shard.

#include "frontend/api/context.h"
#include "frontend/http/router.h"
#include "frontend/net/net.h"

namespace tandem {

Awaitable<void> HandleLoadAdapter(Exchange& exchange, ApiContext* context);
Awaitable<void> HandleUnloadAdapter(Exchange& exchange, ApiContext* context);

}  // namespace tandem
