# Writes a JPEG beside each photo, four at a time. What fails for a while is repeated under the same idempotency key,
# so that it is charged once.
find photos -iname '*.heic' -print0 | xargs -0 -n 1 -P 4 sh -c '
  key=$(head -c 16 /dev/urandom | base64)
  for wait in 1 2 4 8 16 0; do
    after=$(curl {url}/convert --fail-with-body -sS --max-time 300 -w "%header{retry-after}" \
      -H "Authorization: Bearer $CONVERTD_API_KEY" \
      -H "Idempotency-Key: $key" \
      -F "file=@$0" \
      -F output_format=jpeg \
      -o "$0.part") && mv "$0.part" "${0%.*}.jpg" && exit
    ! grep -qs "\"retryable\": false" "$0.part" || break
    sleep "${after:-$wait}"
  done
  echo "$0: $(cat "$0.part")" >&2; rm -f "$0.part"; exit 1'
