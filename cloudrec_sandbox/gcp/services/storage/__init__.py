"""Cloud Storage's JSON API: buckets, their policies, objects, folders."""
