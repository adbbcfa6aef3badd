#pragma once

// A question to another shard: for what one shard owns and others ask for. Two questions of which
// one is asked after the other reach the owner in this order.

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "frontend/net/net.h"

namespace tandem {

// Runs ask(reply) on the owner's shard, by run_on_owner(function), and returns what it replies,
// once, there or later. Thread: any shard's.
template <class T>
Awaitable<T> AskOwner(std::function<void(std::function<void()>)> run_on_owner,
                      std::function<void(std::function<void(T)> reply)> ask) {
  // Shared with the owner's shard, which only passes it on.
  struct Answer {
    std::optional<T> value;
    Event arrived;
  };
  const auto answer = std::make_shared<Answer>();
  std::function<void(T)> reply = [answer, home = Shard::Current()](T value) {
    home->Post([answer, value = std::move(value)]() mutable {
      answer->value.emplace(std::move(value));
      answer->arrived.Set();
    });
  };
  run_on_owner(
      [ask = std::move(ask), reply = std::move(reply)]() mutable { ask(std::move(reply)); });
  co_await answer->arrived.Wait();
  co_return std::move(*answer->value);
}

template <class T>
Awaitable<T> AskShard(Shard* owner, std::function<void(std::function<void(T)> reply)> ask) {
  std::function<void(std::function<void()>)> run = [owner](std::function<void()> function) {
    owner->Post(std::move(function));
  };
  return AskOwner<T>(std::move(run), std::move(ask));
}

}  // namespace tandem
