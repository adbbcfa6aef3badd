"""What the histograms of requests promise together: each has one sample for a request that ended by itself."""

OF_A_REQUEST = ("vllm:e2e_request_latency_seconds", "vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds",
                "vllm:request_decode_time_seconds", "vllm:request_inference_time_seconds",
                "vllm:request_prompt_tokens", "vllm:request_generation_tokens")


def check_histogram_counts(test, server, num_aborted):
    """`test`: a unittest.TestCase. REQUIRES: no request runs."""
    ended = server.total("vllm:request_success_total")
    for name in OF_A_REQUEST:
        test.assertEqual(server.total(name + "_count"), ended - num_aborted, name)
    # A request whose client left has a sample if it had its first token.
    first_tokens = server.total("vllm:time_to_first_token_seconds_count")
    test.assertGreaterEqual(first_tokens, ended - num_aborted)
    test.assertLessEqual(first_tokens, ended)
