// Any batch of KV events becomes one msgpack value of the form [time, events, rank], in both forms
// of hashes; addresses of ranks are made from any text.

#include <string>

#include "common/check.h"
#include "proto_msgpack/kv_event_publisher.h"
#include "proto_msgpack/kv_events.h"
#include "proto_msgpack/msgpack_reader.h"
#include "tests/fuzz/fuzz_input.h"

namespace tandem::wire {
namespace {

KvBlockHash DrawHash(FuzzInput& input) {
  KvBlockHash hash{};
  for (uint8_t& byte : hash) byte = static_cast<uint8_t>(input.Below(256));
  return hash;
}

KvEvent DrawEvent(FuzzInput& input) {
  switch (input.Below(4)) {
    case 0:
      return KvAllBlocksCleared{};
    case 1:
      return KvBlockRemoved{DrawHash(input)};
    default: {
      KvBlockStored stored;
      for (size_t i = input.Below(4); i > 0; --i) stored.block_hashes.push_back(DrawHash(input));
      if (input.Below(2) == 1) stored.parent_block_hash = DrawHash(input);
      for (size_t i = input.Below(9); i > 0; --i) {
        stored.token_ids.push_back(static_cast<TokenId>(input.Below(256) << (input.Below(24))));
      }
      stored.block_size = static_cast<int32_t>(input.Below(256));
      if (input.Below(2) == 1) {
        stored.lora =
            KvBlockStored::Lora{static_cast<int32_t>(input.Below(256)), std::string(input.Part())};
      }
      for (size_t i = input.Below(5); i > 0; --i) {
        stored.extra_keys.emplace_back();
        for (size_t k = input.Below(3); k > 0; --k)
          stored.extra_keys.back().emplace_back(input.Part());
      }
      stored.sliding_window = static_cast<int32_t>(input.Below(256));
      return stored;
    }
  }
}

void CheckForm(const std::string& payload, size_t num_events) {
  MsgpackReader reader(payload);
  CHECK_EQ(reader.ArraySize(), 3u);
  reader.Number();
  CHECK_EQ(reader.ArraySize(), num_events);
  for (size_t i = 0; i < num_events; ++i) {
    uint32_t num_keys = reader.MapSize();
    CHECK(reader.String() == "type");
    CHECK(!reader.String().empty());
    while (reader.ok() && --num_keys > 0) {
      CHECK(!reader.String().empty());
      // Texts of requests may be any bytes here; what reads them skips them.
      reader.Skip();
    }
  }
  reader.Int();
  CHECK(reader.ok()) << reader.status().ToString();
  CHECK(reader.at_end());
}

}  // namespace
}  // namespace tandem::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  using namespace tandem::wire;
  FuzzInput input(data, size);
  KvEventBatch batch;
  batch.ts = static_cast<double>(input.Below(256));
  batch.data_parallel_rank = static_cast<int32_t>(input.Below(256));
  batch.hash_bytes = input.Below(2) == 0 ? 32 : 16;
  for (size_t i = input.Below(5); i > 0; --i) batch.events.push_back(DrawEvent(input));
  for (const KvHashForm form : {KvHashForm::kInteger, KvHashForm::kBytes}) {
    CheckForm(EncodeKvEvents(batch, form), batch.events.size());
  }
  const auto endpoint = KvEndpointOfRank(std::string(input.Rest()), batch.data_parallel_rank);
  CHECK(endpoint.ok() || !endpoint.status().message().empty());
  KvEventsConfig config;
  config.endpoint = std::string(input.Rest());
  MsgpackReader packed(PackedKvEventsConfig(config).packed);
  return 0;
}
