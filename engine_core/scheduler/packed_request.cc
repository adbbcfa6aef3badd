#include "engine_core/scheduler/packed_request.h"

#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/check.h"
#include "proto_msgpack/codec.h"

namespace tandem {

void PackRequest(const wire::EngineCoreRequest& record, std::span<const TokenId> token_ids,
                 ByteWriter* out) {
  CHECK(record.prompt_token_ids.empty()) << record.request_id;
  wire::EncodedMessage message;
  wire::Encode(record, &message, wire::Peer::kTandem);
  out->Bytes(message.body);
  out->Varint(message.aux.size());
  for (const std::string& frame : message.aux) out->Bytes(frame);
  out->List(token_ids);
}

StatusOr<wire::EngineCoreRequest> UnpackRequest(ByteReader* in) {
  std::vector<std::string_view> frames = {in->Bytes()};
  for (size_t left = in->Count(); left > 0; --left) frames.push_back(in->Bytes());
  std::vector<TokenId> token_ids;
  in->List(&token_ids);
  if (!in->ok()) return DataLossError("a request is cut off");
  ASSIGN_OR_RETURN(wire::EngineInput input,
                   wire::DecodeInput(static_cast<uint8_t>(wire::RequestType::kAdd), frames));
  auto* request = std::get_if<wire::EngineCoreRequest>(&input);
  if (request == nullptr) return DataLossError("a request is broken");
  request->prompt_token_ids = std::move(token_ids);
  return std::move(*request);
}

void PackAdapter(const Adapter& adapter, ByteWriter* out) {
  out->Signed(adapter.id);
  if (adapter.id == 0) return;
  out->Bytes(adapter.name);
  out->Bytes(adapter.path);
  out->Signed(adapter.version);
  out->Signed(adapter.lora_int_id);
  out->Fixed(adapter.digest);
}

Adapter UnpackAdapter(ByteReader* in) {
  Adapter adapter;
  adapter.id = static_cast<AdapterId>(in->Signed());
  if (adapter.id == 0) return adapter;
  adapter.name = std::string(in->Bytes());
  adapter.path = std::string(in->Bytes());
  adapter.version = in->Signed();
  adapter.lora_int_id = static_cast<int32_t>(in->Signed());
  adapter.digest = in->Fixed<uint64_t>();
  return adapter;
}

}  // namespace tandem
